"""`lakebed show | timeline | slices | commit | config`: print the state of a table."""

from __future__ import annotations

from typing import Annotated

import pyarrow.compute as pc
import typer

from lakebed.cli.output import print_json, print_pairs, print_table, size_text
from lakebed.open_table import open as open_table

PathArgument = Annotated[str, typer.Argument(help="Folder or URL of the table.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def show(path: PathArgument, as_json: JsonOption = False) -> None:
    """What the table is: type, version, schema, size, last commit."""
    table = open_table(path)
    config = table.config
    slices = table.inspect.file_slices()
    timeline = table.inspect.timeline()
    completed = timeline.filter(pc.field("state") == "completed")
    pending = timeline.num_rows - completed.num_rows
    facts = {
        "name": config.name,
        "location": table.url,
        "type": config.table_type,
        "table version": int(config.version),
        "layout": config.layout,
        "record key": ", ".join(config.key_fields) or None,
        "partitioned by": ", ".join(config.partition_fields) or None,
        "ordering": ", ".join(config.ordering_fields) or None,
        "merge mode": str(config.merge_mode),
        "metadata table": ", ".join(config.metadata_partitions) or None,
        "partitions": len(set(slices["partition"].to_pylist())),
        "file groups": slices.num_rows,
        "base files": pc.sum(pc.is_valid(slices["base_file"])).as_py() or 0,
        "log files": pc.sum(slices["log_files"]).as_py() or 0,
        "bytes": pc.sum(slices["bytes"]).as_py() or 0,
        "completed instants": completed.num_rows,
        "pending instants": pending,
        "last completed": pc.max(completed["completion"]).as_py() if completed.num_rows else None,
        "columns": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in table.schema
        ],
    }
    if as_json:
        print_json(facts)
        return
    facts["bytes"] = size_text(facts["bytes"])
    facts["columns"] = "\n".join(f"{item['name']}: {item['type']}" for item in facts["columns"])
    print_pairs(facts.items(), as_json=False, title=config.name)


def timeline(
    path: PathArgument,
    history: Annotated[bool, typer.Option("--history", help="Archived instants too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Every instant: action, state, requested and completion time."""
    print_table(open_table(path).inspect.timeline(history=history), as_json=as_json)


def slices(
    path: PathArgument,
    as_of: Annotated[str | None, typer.Option(help="An instant or a time.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The latest file slice of every file group: base file and logs."""
    table = open_table(path).inspect.file_slices(as_of=as_of)
    print_table(table, as_json=as_json)


def commit(
    path: PathArgument,
    instant: Annotated[str, typer.Argument(help="Requested or completion time of the instant.")],
    as_json: JsonOption = False,
) -> None:
    """What one commit wrote, file by file."""
    print_table(open_table(path).inspect.commit(instant), as_json=as_json)


def config(path: PathArgument, as_json: JsonOption = False) -> None:
    """The table's properties, and where each value comes from."""
    print_table(open_table(path).inspect.config(), as_json=as_json)
