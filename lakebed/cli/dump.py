"""`lakebed log dump` and `lakebed hfile dump`: print one file, block by block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from lakebed.cli.json_values import json_rows
from lakebed.cli.output import print_json, print_pairs, print_table, say
from lakebed.datafile.log_file import open_log_file, read_block
from lakebed.errors import InvalidRequest
from lakebed.format.avro.container import decode_binary
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.log.block import LogBlock
from lakebed.storage.local import LocalStorage

log_app = typer.Typer(help="Look into a log file.", no_args_is_help=True)
hfile_app = typer.Typer(help="Look into an HFile.", no_args_is_help=True)
FileArgument = Annotated[Path, typer.Argument(help="A local file.")]
SHOWN_TEXT = 160
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _storage_of(file: Path) -> tuple[LocalStorage, str]:
    if not file.is_file():
        raise InvalidRequest(
            "there is no such file", file=str(file), hint="`lakebed slices PATH` lists the files of a table."
        )
    absolute = file.resolve()
    return LocalStorage(str(absolute.parent)), absolute.name


@log_app.command("dump")
def log_dump(
    file: FileArgument,
    rows: Annotated[int, typer.Option(min=0, help="Rows to show of each block; 0 shows headers only.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Every block of a log file, of either format: kind, header, first rows; damaged byte ranges too."""
    storage, name = _storage_of(file)
    shown = []
    for number, block in enumerate(open_log_file(storage, name).blocks):
        facts: dict[str, Any] = {
            "block": number,
            "kind": block.kind.name,
            "format": block.version,
            "offset": block.offset,
            "content bytes": block.content_length,
            **{key.name: _short(value) for key, value in block.header.items()},
        }
        sample = _first_rows(storage, block, rows)
        if as_json:
            shown.append({**facts, "rows": json_rows(sample, exact=False)})
            continue
        print_pairs(facts.items(), as_json=False)
        if sample.num_rows:
            print_table(sample, as_json=False)
    if as_json:
        print_json(shown)


@hfile_app.command("dump")
def hfile_dump(
    file: FileArgument,
    rows: Annotated[int, typer.Option(min=0, help="Entries to show; 0 shows the trailer only.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Trailer, file info and first entries of an HFile; values of the metadata table are decoded."""
    storage, name = _storage_of(file)
    size = file.stat().st_size
    reader = HFileReader(lambda offset, length: storage.read_ranges(name, [(offset, length)])[0], size, name)
    schema = reader.file_info.get(b"schema")
    entries: list[dict[str, Any]] = []
    for key, value in reader.entries():
        if len(entries) >= rows:
            break
        decoded = decode_binary(json.loads(schema), value, name, 0) if schema else value
        entries.append({"key": key.decode("utf-8", "replace"), "value": decoded})
    facts = {
        "entries": reader.trailer.entry_count,
        **{key.decode("utf-8", "replace"): _short(_readable(value)) for key, value in reader.file_info.items()},
    }
    if as_json:
        print_json({"info": facts, "entries": entries})
        return
    print_pairs(facts.items(), as_json=False, title=name)
    print_pairs(((entry["key"], entry["value"]) for entry in entries), as_json=False)
    if reader.trailer.entry_count > len(entries):
        say(f"{len(entries)} of {reader.trailer.entry_count} entries; --rows N shows more", style="dim")


def _first_rows(storage: LocalStorage, block: LogBlock, rows: int) -> pa.Table:
    """The first rows of a block; deletes come with their keys only, as ordering fields are unknown here."""
    taken: list[pa.RecordBatch] = []
    left = rows
    for batch in read_block(storage, block, batch_rows=max(1, rows)) if rows else ():
        taken.append(batch.slice(0, left))
        left -= taken[-1].num_rows
        if left <= 0:
            break
    return pa.Table.from_batches(taken) if taken else pa.table({})


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}… ({len(text)} characters)"


def _readable(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return text if text.isprintable() else value.hex()
