"""Files of our writers in tables put together by hand: real Hudi and hudi-rs read them, Hudi goes on writing them.

All types are in it: nested lists with null elements, maps of structs, decimals of several widths. What Hudi refuses is
in it as well, so that the day it stops refusing is noticed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.config.write_options import FileOptions, LogBlockFormat
from lakebed.datafile.log_writer import LogSpec
from lakebed.datafile.log_writer_v1 import InlineLogWriter
from lakebed.datafile.writers import BaseFileWriter, FileSchema, WriteTarget, WrittenFile
from lakebed.format.table_files import render_properties, table_checksum
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CommitMetadata
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Action, State
from lakebed.model.schema import table_avro
from lakebed.storage.local import LocalStorage

from .client import HudiPeer, PeerError, peer_python
from .hudi_writer import INDEX_OPTIONS, NO_CLEANING, NO_METADATA, WRITE, upsert_options
from .rows import Answer, from_arrow, from_json, row_difference, schema_difference

pytestmark = pytest.mark.interop

GROUP = FileGroupId("", "00000000-0000-4000-8000-000000000000-0")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("o", pa.bool_()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("small", pa.decimal128(10, 2)),
        ("large", pa.decimal128(30, 5)),
        ("l", pa.list_(pa.string())),
        ("ll", pa.list_(pa.list_(pa.int32()))),
        ("ls", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))])),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("ms", pa.map_(pa.string(), pa.struct([("z", pa.float64())]))),
    ]
)


def row(number: int, ts: int, *, holes: bool) -> dict[str, Any]:
    """A row; with `holes` lists have null elements, which Hudi's own Avro writer cannot store by default."""
    return {
        "id": f"k{number:04d}",
        "ts": ts,
        "n": number,
        "f": number / 4,
        "d": number / 3 if number % 2 else None,
        "o": bool(number % 2),
        "raw": bytes([number % 256, 255]),
        "day": date(2021, 1, 1) + timedelta(days=number),
        "at": datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=number, microseconds=7),
        "small": Decimal(number * 100 - 5) / 100 if number % 4 else None,
        "large": Decimal(-number) / 1000,
        "l": ["a", *([None] if holes else []), "c"] if number % 3 else None,
        "ll": [[1, 2], [], *([[None], None] if holes else [])],
        "ls": [{"x": number, "y": None}, *([None] if holes else [])],
        "s": {"a": number, "b": [number, *([None] if holes else [])]} if number % 5 else None,
        "m": [("u", number), ("v", None)],
        "ms": [("p", {"z": number / 2})],
    }


class Table:
    """A table of version 9 made of our files, one commit per call."""

    def __init__(self, root: Path, kind: str, *, holes: bool = True, options: FileOptions | None = None) -> None:
        self.root, self.kind, self.holes = root, kind, holes
        self.options = options or FileOptions(log_row_group_rows=20, row_group_rows=40)
        self.schema = FileSchema.of_table(SCHEMA, "t")
        self.clock = 20260101000000000
        properties = {
            "hoodie.table.name": "t",
            "hoodie.table.type": kind,
            "hoodie.table.version": "9",
            "hoodie.table.initial.version": "9",
            "hoodie.timeline.layout.version": "2",
            "hoodie.table.base.file.format": "PARQUET",
            "hoodie.table.recordkey.fields": "id",
            "hoodie.table.keygenerator.type": "NON_PARTITION",
            "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.table.storage.layout": "lsm_tree",
        }
        properties["hoodie.table.checksum"] = str(table_checksum(properties))
        (root / ".hoodie" / "timeline" / "history").mkdir(parents=True)
        (root / ".hoodie" / "hoodie.properties").write_bytes(render_properties(properties, ["made by hand"]))
        (root / ".hoodie_partition_metadata").write_text(f"commitTime={self.clock}\npartitionDepth=0\n")
        self.storage = LocalStorage(root)

    def base(self, numbers: Iterable[int], ts: int, *, bloom_filter: bool = True) -> str:
        requested_time = self._begin()
        target = WriteTarget(GROUP, requested_time)
        with BaseFileWriter(self.storage, target, self.schema, self.options, bloom_filter=bloom_filter) as writer:
            writer.write(self._rows(numbers, ts, requested_time, self.schema.arrow))
            writer.counts.inserts = writer.rows
            return self._commit(requested_time, Action.COMMIT, [writer.close()])

    def log(
        self,
        numbers: Iterable[int],
        ts: int,
        gone: Sequence[tuple[int, int | None]] = (),
        *,
        columns: Sequence[str] | None = None,
        positions_of: str | None = None,
    ) -> str:
        """Rows and deletes by (number, ordering value); with `columns` a partial update."""
        requested_time = self._begin()
        part = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
        schema = FileSchema.of_table(part, "t")
        spec = LogSpec(schema, (schema.arrow.field("ts"),), is_partial=columns is not None, positions_base=positions_of)
        places = np.array(list(numbers), np.uint64)
        with InlineLogWriter(self.storage, WriteTarget(GROUP, requested_time), spec, self.options) as writer:
            if len(places):
                rows = self._rows(numbers, ts, requested_time, schema.arrow)
                writer.write_rows(rows, positions=places if positions_of else None)
            if gone:
                keys = [f"k{number:04d}" for number, _ in gone]
                values = pa.array([value for _, value in gone], pa.int64())
                writer.write_deletes(
                    pa.record_batch({"_hoodie_record_key": keys, "ts": values}),
                    positions=np.array([number for number, _ in gone], np.uint64) if positions_of else None,
                )
            return self._commit(requested_time, Action.DELTA_COMMIT, writer.close())

    def incoming(self, numbers: Iterable[int], ts: int) -> pa.Table:
        return pa.Table.from_pylist([row(number, ts, holes=False) for number in numbers], schema=SCHEMA)

    def ours(self) -> Answer:
        return from_arrow(lakebed.open(str(self.root)).scan().to_arrow())

    def _rows(self, numbers: Iterable[int], ts: int, requested_time: str, schema: pa.Schema) -> pa.RecordBatch:
        made = []
        for number in numbers:
            one = row(number, ts, holes=self.holes)
            meta = {"_hoodie_commit_time": requested_time, "_hoodie_commit_seqno": f"{requested_time}_0_{number}"}
            made.append({**meta, "_hoodie_record_key": one["id"], **one})
        kept = [field for field in schema if field.name not in ("_hoodie_file_name", "_hoodie_partition_path")]
        return pa.RecordBatch.from_pylist(made, schema=pa.schema(kept))

    def _begin(self) -> str:
        self.clock += 1000
        return str(self.clock)

    def _commit(self, requested_time: str, action: Action, files: Sequence[WrittenFile]) -> str:
        timeline = self.root / ".hoodie" / "timeline"
        (timeline / f"{requested_time}.{action}.requested").write_bytes(b"")
        inflight = f"{requested_time}.inflight" if action is Action.COMMIT else f"{requested_time}.{action}.inflight"
        (timeline / inflight).write_bytes(b"")
        schema = json.dumps(table_avro(SCHEMA, "t"))
        body = CommitMetadata("UPSERT", {"": tuple(file.stat for file in files)}, {"schema": schema})
        (timeline / f"{requested_time}_{int(requested_time) + 500}.{action}").write_bytes(
            encode_body(body, action, State.COMPLETED)
        )
        return requested_time


def options(table_type: str, index: str = "simple") -> dict[str, str]:
    return upsert_options("t", table_type, **NO_METADATA, **NO_CLEANING, **INDEX_OPTIONS[index]) | {
        f"{WRITE}partitionpath.field": "",
        f"{WRITE}keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.write.table.version": "9",
        "hoodie.archive.automatic": "false",
    }


def assert_same(table: Table, hudi: HudiPeer, how: dict[str, str] | None = None) -> Answer:
    """Hudi's rows are ours, meta columns included."""
    ours, theirs = table.ours(), from_json(hudi.read(table.root, how))
    assert schema_difference(ours, theirs) == ""
    assert row_difference(ours, theirs) == ""
    return ours


def by_id(answer: Answer) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in answer.dicts()}


def compact(hudi: HudiPeer, table: Table) -> None:
    how = {**NO_METADATA, "hoodie.compact.inline.max.delta.commits": "1"}
    hudi.call("run_compaction", table.root, {**how, "hoodie.embed.timeline.server": "false"}, op="scheduleandexecute")


@pytest.mark.parametrize("index", ["simple", "bloom"])
def test_hudi_reads_and_merges_our_base_files(hudi: HudiPeer, tmp_path: Path, index: str) -> None:
    table = Table(tmp_path / "t", "COPY_ON_WRITE", holes=False)
    table.base(range(100), 10)
    assert len(assert_same(table, hudi).rows) == 100
    hudi.write(table.root, table.incoming(range(50, 150), 20), options("cow", index))
    merged = by_id(assert_same(table, hudi))
    assert len(merged) == 150, "a key that an index missed would be there twice"
    assert sum(one["ts"] == 20 for one in merged.values()) == 100


@pytest.mark.parametrize("blocks", list(LogBlockFormat))
@pytest.mark.parametrize("holes", [False, True])
def test_hudi_reads_upserts_and_compacts_our_logs(
    hudi: HudiPeer, tmp_path: Path, blocks: LogBlockFormat, holes: bool
) -> None:
    how = FileOptions(log_block_format=blocks, log_row_group_rows=20)
    table = Table(tmp_path / "t", "MERGE_ON_READ", holes=holes, options=how)
    table.base(range(100), 10)
    table.log(range(20, 60), 20, [(70, 15), (71, 5), (72, None)])
    read = by_id(assert_same(table, hudi))
    assert {"k0070", "k0072"}.isdisjoint(read)
    assert (len(read), read["k0071"]["ts"], read["k0030"]["ts"]) == (98, 10, 20)
    hudi.write(table.root, table.incoming(range(50, 70), 30), options("mor"))
    assert_same(table, hudi)
    compact(hudi, table)
    after = by_id(assert_same(table, hudi))
    assert (len(after), after["k0055"]["ts"], after["k0030"]["ts"], after["k0001"]["ts"]) == (98, 30, 20, 10)


@pytest.mark.parametrize("blocks", list(LogBlockFormat))
def test_hudi_reads_our_partial_updates(hudi: HudiPeer, tmp_path: Path, blocks: LogBlockFormat) -> None:
    table = Table(tmp_path / "t", "MERGE_ON_READ", options=FileOptions(log_block_format=blocks))
    table.base(range(30), 10)
    table.log(range(5), 20, columns=["id", "ts", "n"])
    read = by_id(assert_same(table, hudi))
    assert (read["k0003"]["ts"], read["k0003"]["large"]) == (20, "-0.00300")
    compact(hudi, table)
    assert_same(table, hudi)


def test_hudi_uses_our_record_positions(hudi: HudiPeer, tmp_path: Path) -> None:
    table = Table(tmp_path / "t", "MERGE_ON_READ")
    base = table.base(range(100), 10)
    table.log(range(20, 30), 20, [(50, 99)], positions_of=base)
    read = by_id(assert_same(table, hudi, {"hoodie.merge.use.record.positions": "true"}))
    assert (len(read), read["k0025"]["ts"], "k0050" in read) == (99, 20, False)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "uncompressed", "zstd"])
def test_hudi_reads_every_codec(hudi: HudiPeer, tmp_path: Path, codec: str) -> None:
    how = FileOptions.from_properties({"hoodie.parquet.compression.codec": codec})
    table = Table(tmp_path / "t", "COPY_ON_WRITE", options=how)
    table.base(range(10), 10)
    assert_same(table, hudi)


def test_what_hudi_refuses(hudi: HudiPeer, tmp_path: Path) -> None:
    """Its bloom index needs a filter in every base file; its Avro writer cannot rewrite null list elements."""
    bare = Table(tmp_path / "bare", "COPY_ON_WRITE", holes=False)
    bare.base(range(10), 10, bloom_filter=False)
    with pytest.raises(PeerError):
        hudi.write(bare.root, bare.incoming(range(5), 20), options("cow", "bloom"))
    holes = Table(tmp_path / "holes", "COPY_ON_WRITE")
    holes.base(range(10), 10)
    assert len(assert_same(holes, hudi).rows) == 10
    with pytest.raises(PeerError):
        hudi.write(holes.root, holes.incoming(range(5), 20), options("cow"))


@pytest.fixture
def hudi_rs(tmp_path: Path) -> Callable[[Path], Answer]:
    """A table as hudi-rs reads it."""

    def read(path: Path) -> Answer:
        out = tmp_path / "answer.arrow"
        script = Path(__file__).with_name("hudi_rs.py")
        done = subprocess.run(
            [str(peer_python()), str(script)],
            input=json.dumps({"path": str(path), "out": str(out)}) + "\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        error = json.loads(done.stdout)["error"]
        assert error is None, error
        with pa.OSFile(str(out)) as source:
            return from_arrow(pa.ipc.open_file(source).read_all())

    return read


@pytest.mark.parametrize("blocks", list(LogBlockFormat))
def test_hudi_rs_reads_our_files(hudi_rs: Callable[[Path], Answer], tmp_path: Path, blocks: LogBlockFormat) -> None:
    how = FileOptions(log_block_format=blocks, log_row_group_rows=20)
    table = Table(tmp_path / "t", "MERGE_ON_READ", options=how)
    table.base(range(100), 10)
    table.log(range(20, 60), 20, [(70, 15), (71, 5), (72, None)])
    ours, theirs = table.ours(), hudi_rs(table.root)
    assert schema_difference(ours, theirs) == ""
    assert row_difference(ours, theirs) == ""
