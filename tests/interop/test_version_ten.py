"""Tables of version 10 and the rest of the world: nobody takes them for something they know, every Parquet reader opens
their files, and after a downgrade they are tables of real Hudi.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import lakebed

from .client import HudiPeer, PeerError
from .going_on import complaint_of, filled
from .hudi_turn import run_turn
from .kinds import Kind
from .rows import Answer
from .rs_client import HudiRs

pytestmark = pytest.mark.interop
SEED = 1
KINDS = [
    Kind(version=10, keys="simple", paths="hive", operation="delete_keys"),
    Kind(version=10, layout="default", index="simple", keys="complex", operation="update"),
    Kind(version=10, index="consistent_bucket", keys="flat", ordering="none", operation="merge_partial"),
    Kind(version=10, index="global_bloom", keys="timestamp", operation="upsert"),
    Kind(version=10, table_type="cow", index="bloom", keys="simple", paths="hive_url", operation="overwrite"),
]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


@by_kind
def test_both_refuse_a_table_of_version_ten(hudi: HudiPeer, rs: HudiRs, tmp_path: Path, kind: Kind) -> None:
    """By the version: not by chance, and not with an answer that lacks the logs."""
    path = tmp_path / "t"
    work = filled(path, kind, SEED)
    with pytest.raises(PeerError, match=r"(?i)version"):
        hudi.read(path)
    rows = work.table_of(work.mixed(late=False, marks=False))
    before = sorted(entry.name for entry in (path / ".hoodie" / "timeline").iterdir())
    with pytest.raises(PeerError):
        run_turn(hudi, path, replace(kind, version=9), rows, "upsert", services=())
    assert sorted(entry.name for entry in (path / ".hoodie" / "timeline").iterdir()) == before
    answer = rs.read(path)
    assert not isinstance(answer, Answer), f"hudi-rs reads {len(answer.rows)} rows"
    assert "version" in answer.lower()


@by_kind
def test_any_parquet_reader_opens_the_files(tmp_path: Path, kind: Kind) -> None:
    """DuckDB shows the read-optimized rows of the base files, and what the last write changed, and deletes in logs."""
    path = tmp_path / "t"
    work = filled(path, kind, SEED)
    table = lakebed.open(path)
    slices = table.inspect.file_slices().to_pylist()
    bases = [
        str(path / file_slice["partition"] / file_slice["base_file"])
        for file_slice in slices
        if file_slice["base_file"]
    ]
    logs = [str(path / file_slice["partition"] / name) for file_slice in slices for name in file_slice["logs"]]
    names = [*kind.key_fields, "v", "txt"]
    chosen = ", ".join(names)
    found = duckdb.sql(f"SELECT {chosen} FROM read_parquet({bases})").fetchall()
    wanted = table.scan(columns=names, query="read_optimized").to_arrow().to_pylist()
    assert sorted(map(str, found)) == sorted(str(tuple(row.values())) for row in wanted)
    assert bool(logs) == kind.is_mor
    everything = f"read_parquet({[*bases, *logs]}, union_by_name = true)"
    last = {place[1] for place, version in work.model.rows.items() if version.write == work.model.writes}
    newest = f"_hoodie_commit_time = '{work.instants[-1].requested_time}'"
    written = duckdb.sql(f"SELECT _hoodie_record_key FROM {everything} WHERE {newest}").fetchall()
    assert last <= {row[0] for row in written}
    deletes = duckdb.sql(f"SELECT _hoodie_record_key FROM {everything} WHERE _hoodie_commit_time IS NULL").fetchall()
    assert bool(deletes) == kind.is_mor


@by_kind
def test_a_downgraded_table_goes_on_with_hudi(hudi: HudiPeer, rs: HudiRs, tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "t"
    work = filled(path, kind, SEED)
    work.table.services.downgrade(to=9)
    work.model.settle(work.model.rows)
    assert complaint_of(hudi, rs, path, work, replace(kind, version=9)) == ""
