"""The peer itself, and the differences it is there to show: when real Hudi changes its mind, these fail."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed

from .client import HudiPeer, PeerError
from .hudi_writer import HudiWriter
from .operations import TableShape, Write, sample_row
from .rows import from_arrow, from_json

pytestmark = pytest.mark.interop


def orderings(rows: list[dict[str, object]]) -> dict[object, object]:
    return {row["id"]: row["ts"] for row in rows}


def writer_with(hudi: HudiPeer, path: Path, *writes: Write) -> HudiWriter:
    writer = HudiWriter(hudi, path, TableShape(buckets=1))
    for write in writes:
        writer.run(write)
    return writer


def put(kind: str, *riders: str, **keys: int) -> Write:
    return Write(kind, tuple(sample_row(key, "p0", ordering, ordering) for key, ordering in keys.items()), riders)


def test_a_refused_request_leaves_the_peer_alive(hudi: HudiPeer, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"hoodie\.table\.name"):
        hudi.write(tmp_path / "t", pa.table({"id": ["a"]}), {})
    assert hudi.sql("select 1 as one, cast(null as date) as day") == {
        "columns": ["one", "day"],
        "types": ["int", "date"],
        "count": 1,
        "rows": [[1, None]],
    }


def test_settings_hold_for_one_statement(hudi: HudiPeer) -> None:
    key = "spark.sql.shuffle.partitions"
    assert hudi.sql(f"set {key}", conf={key: "7"})["rows"] == [[key, "7"]]
    assert hudi.sql(f"set {key}")["rows"] == [[key, "2"]]


def test_hudi_brings_a_deleted_row_back_after_an_older_insert(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer_with(hudi, path, put("insert", a=10), put("delete", a=10), put("upsert", a=5))
    assert orderings(from_json(hudi.read(path)).dicts()) == {"a": 10}
    assert orderings(from_arrow(lakebed.open(str(path)).scan().to_arrow()).dicts()) == {"a": 5}


def test_hudi_shows_late_rows_in_incremental_answers(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = writer_with(hudi, path, put("insert", a=10, b=10), put("upsert", a=5, b=20))
    start = writer.instants[0].completion
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": start,
    }
    assert orderings(from_json(hudi.read(path, options)).dicts()) == {"a": 5, "b": 20}
    ours = lakebed.open(str(path)).incremental(start=start).to_arrow()
    assert orderings(from_arrow(ours).dicts()) == {"b": 20}


def test_hudi_judges_log_compacted_rows_by_what_the_block_covers(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    steps = [
        put("insert", a=10, b=10, c=10),
        put("upsert", a=20),
        put("upsert", "log_compact", b=30),
        put("upsert", c=40),
    ]
    writer = writer_with(hudi, path, *steps)
    assert len(writer.instants) == 5, "four writes and the log compaction"

    def seen(after: int) -> tuple[set[object], set[object]]:
        start = writer.instants[after - 1].completion
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": start,
        }
        theirs = from_json(hudi.read(path, options)).dicts()
        ours = from_arrow(lakebed.open(str(path)).incremental(start=start).to_arrow()).dicts()
        return {row["id"] for row in ours}, {row["id"] for row in theirs}

    assert seen(2) == ({"a", "b", "c"}, {"a", "b", "c"})
    assert seen(3) == ({"a", "b", "c"}, {"c"})
    assert seen(4) == ({"c"}, {"c"})
