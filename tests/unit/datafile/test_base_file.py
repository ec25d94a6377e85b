"""Every base file of every golden table, row by row against what real Hudi read."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from lakebed.datafile.base_file import open_base_file, open_source
from lakebed.datafile.orc_source import OrcSource
from lakebed.errors import CorruptTable, LakebedError, UnsupportedFormat
from lakebed.model.files import BaseFile, FileGroupId
from lakebed.model.key_range import KeyRange
from lakebed.model.schema import RECORD_KEY, avro_to_arrow
from lakebed.model.schema_evolution import resolve
from tests.conftest import GOLDEN_NAMES, expected


def as_json(value: Any) -> Any:
    """A value as the recipe that made the golden tables wrote it down; decimals by value."""
    match value:
        case bytes():
            return {"b64": base64.b64encode(value).decode()}
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case dt.date():
            return value.isoformat()
        case list():
            return [as_json(item) for item in value]
        case dict():
            return {key: as_json(item) for key, item in value.items()}
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def same(got: Any, wanted: Any) -> bool:
    if isinstance(got, Decimal):
        return got == Decimal(wanted)
    if isinstance(got, dict) and isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(same(got[key], wanted[key]) for key in got)
    return bool(as_json(got) == wanted)


def base_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*_*")):
        if path.suffix in (".parquet", ".orc") and ".hoodie" not in path.parts:
            yield path


EVOLVED = {"mor_nested_evo_avro_v9", "mor_nested_evo_parquet_v9", "mor_schema_evo_v9"}  # in test_schema_evolution.py


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if name not in EVOLVED])
def test_rows_are_what_hudi_reads(golden: Callable[[str], Path], name: str) -> None:
    facts = expected(name)
    query = facts.get("read_optimized")
    query = query if isinstance(query, dict) and "columns" in query else facts["snapshot"]
    columns = query["columns"]
    partitioned = set(facts["properties"].get("hoodie.table.partition.fields", "").replace(":", ",").split(","))
    checked = [i for i, column in enumerate(columns) if column not in partitioned]  # those Hudi takes from the path
    wanted = defaultdict(list)
    if "_hoodie_file_name" in columns:
        position = columns.index("_hoodie_file_name")
        for row in query["rows"]:
            wanted[row[position]].append([row[i] for i in checked])
    for path in base_files(golden(name)):
        file = open_source(pa.OSFile(str(path)), path.name)
        rows = pa.Table.from_batches(list(file.batches(batch_rows=7)), file.schema).to_pylist(maps_as_pydicts="strict")
        assert len(rows) == file.num_rows
        if path.name not in wanted:
            continue
        got = [[row.get(columns[i]) for i in checked] for row in rows]
        pending = wanted.pop(path.name)
        assert len(got) == len(pending)
        for row in got:
            match = next((other for other in pending if all(map(same, row, other))), None)
            assert match is not None, row
            pending.remove(match)


@pytest.mark.parametrize(
    "name", ["cow_hive_v9", "mor_nested_evo_avro_v9", "orc_cow_v9", "orc_mor_v9", "cow_clustering_v9"]
)
def test_files_resolve_to_their_avro_schema_without_loss(golden: Callable[[str], Path], name: str) -> None:
    for path in base_files(golden(name)):
        file = open_source(pa.OSFile(str(path)), path.name)
        avro = file.footer.get("parquet.avro.schema") or file.footer.get("orc.avro.schema")
        if avro is None:
            assert "org.apache.spark.version" in file.footer
            continue
        reader = avro_to_arrow(avro)
        projection = resolve(file.schema, reader)
        for batch in file.batches(projection.columns):
            out = projection(batch)
            out.validate(full=True)
            assert str(out.schema) == str(reader)
            assert out.to_pylist() == batch.to_pylist()


def orc_files(golden: Callable[[str], Path]) -> list[Path]:
    return [path for name in ("orc_cow_v9", "orc_mor_v9") for path in base_files(golden(name))]


def test_orc_has_the_same_face(golden: Callable[[str], Path]) -> None:
    for path in orc_files(golden):
        file = open_source(pa.OSFile(str(path)), path.name)
        assert isinstance(file, OrcSource)
        keys = [key for batch in file.batches([RECORD_KEY]) for key in batch.column(0).to_pylist()]
        assert file.key_range == KeyRange(min(keys), max(keys))
        assert not file.is_sorted
        assert file.row_bytes() > 50
        some = KeyRange(keys[3], keys[3])
        assert [batch.to_pylist() for batch in file.batches(["id", "nope"], key_range=some)] == [[{"id": keys[3]}]]
        assert sum(batch.num_rows for batch in file.batches([])) == len(keys)
        assert next(file.batches(batch_rows=20)).num_rows == min(20, len(keys))


def test_orc_stripes_come_one_by_one() -> None:
    table = pa.table({RECORD_KEY: [f"{number:06}" for number in range(40_000)], "n": range(40_000)})
    sink = pa.BufferOutputStream()
    with orc.ORCWriter(sink, stripe_size=1, batch_size=1000) as writer:
        for batch in table.to_batches(max_chunksize=10_000):
            writer.write(pa.Table.from_batches([batch]))
    file = open_source(pa.BufferReader(sink.getvalue()), "f.orc")
    assert pa.Table.from_batches(list(file.batches())).equals(table)
    assert file.counters.row_groups > 1


def test_open_by_path_and_by_base_file(golden: Callable[[str], Path]) -> None:
    class Folder:
        def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
            return pa.OSFile(str(root / path))

    root = golden("cow_simple_v9")
    path = next(base_files(root))
    relative = str(path.relative_to(root))
    value = BaseFile(relative, path.stat().st_size, FileGroupId("", "x"), "1", "0-0-0")
    with open_base_file(Folder(), value) as file:  # type: ignore[arg-type]
        assert file.label == relative
    assert open_base_file(Folder(), relative).num_rows == file.num_rows  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        open_base_file(Folder(), "p0/none.parquet")  # type: ignore[arg-type]


def test_other_files_are_refused_by_what_they_hold() -> None:
    with pytest.raises(CorruptTable):
        open_source(pa.BufferReader(b"garbage" * 9), "f.parquet")
    with pytest.raises(CorruptTable):
        open_source(pa.BufferReader(b""), "f.orc")
    with pytest.raises(CorruptTable):
        open_source(pa.BufferReader(b"ORC"), "f.orc")
    with pytest.raises(UnsupportedFormat, match="lance"):
        open_source(pa.BufferReader(b"garbage" * 9), "f.lance")
    with pytest.raises(UnsupportedFormat, match="encrypted"):
        open_source(pa.BufferReader(b"PARE" * 9), "f.parquet")


def test_orc_files_with_a_damaged_tail_raise_nothing_else(golden: Callable[[str], Path]) -> None:
    """Footer and postscript only: damage inside a stripe can end in Arrow's reader itself, which no test survives."""
    path = orc_files(golden)[0]
    raw = path.read_bytes()
    stripes = orc.ORCFile(str(path)).content_length
    refused = 0
    for position in range(stripes, len(raw), 3):
        damaged = bytearray(raw)
        damaged[position] ^= 0x80
        try:
            file = open_source(pa.BufferReader(bytes(damaged)), path.name)
            assert sum(batch.num_rows for batch in file.batches()) == file.num_rows
        except LakebedError:
            refused += 1
    assert refused > 100
    for length in range(0, len(raw), 11):
        with pytest.raises(CorruptTable):
            open_source(pa.BufferReader(raw[:length]), path.name)
