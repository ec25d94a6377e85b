"""The check of sorted files finds every kind of lie, and nothing in honest files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.config.write_options import FileOptions
from lakebed.datafile.log_writer import LogSpec
from lakebed.datafile.log_writer_v1 import InlineLogWriter
from lakebed.datafile.log_writer_v2 import NativeLogWriter
from lakebed.datafile.sorted_check import KEY_MARKS, MARKED, READABLE, SORTED, check_sorted_file
from lakebed.datafile.writers import BaseFileWriter, FileSchema, WriteTarget
from lakebed.format.bloom_filter import FOOTER_KEY, MAX_KEY, TYPE_CODE_KEY, DynamicBloomFilter, Sizing
from lakebed.model.files import FileGroupId
from lakebed.model.finding import Severity
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage

KEY = "_hoodie_record_key"
PATH = "f-0_0-0-0_20260101000000000.parquet"
TARGET = WriteTarget(FileGroupId("", "f-0"), "20260101000000000")
SCHEMA = FileSchema.of_table(pa.schema([("id", pa.string())]), "t")


def rows(keys: list[str]) -> pa.RecordBatch:
    texts = pa.array(keys, pa.string())
    same = pa.array(["1"] * len(keys), pa.string())
    return pa.record_batch({"_hoodie_commit_time": same, "_hoodie_commit_seqno": same, KEY: texts, "id": texts})


def forged(keys: list[str], footer: Mapping[str, str], *, sorting: bool = True, row_group: int = 100) -> MemoryStorage:
    """A file that claims whatever the test wants."""
    table = pa.table({KEY: pa.array(keys, pa.string())})
    order = pq.SortingColumn.from_ordering(table.schema, [(KEY, "ascending")]) if sorting else None
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, sorting_columns=order) as writer:
        writer.write_table(table, row_group_size=row_group)
        writer.add_key_value_metadata(dict(footer))
    storage = MemoryStorage()
    storage.put(PATH, sink.getvalue().to_pybytes())
    return storage


def invariants(storage: MemoryStorage) -> list[str]:
    return [finding.invariant for finding in check_sorted_file(storage, PATH)]


def test_what_writers_write_is_in_order() -> None:
    storage = MemoryStorage()
    keys = [f"k{number:05d}" for number in range(5000)] + ["\ufffd", "\U0001f600"]
    spec, options = LogSpec(SCHEMA), FileOptions(log_row_group_rows=700, row_group_rows=900)
    with BaseFileWriter(storage, TARGET, SCHEMA, options, bloom_filter=True) as base:
        base.write(rows(keys))
        paths = [base.close().stat.path]
    for opened in (InlineLogWriter, NativeLogWriter):
        with opened(storage, TARGET, spec, options) as log:
            log.write_rows(rows(keys))
            log.write_deletes(rows(["a", "b"]).select([KEY]))
            paths += [file.stat.path for file in log.close()]
    assert len(paths) == 4
    for path in paths:
        assert check_sorted_file(storage, path or "") == []


@pytest.mark.parametrize("keys", [["b", "a"], ["a", "a"], ["a", "c", "b"]])
def test_disorder_behind_a_mark(keys: list[str]) -> None:
    (finding,) = check_sorted_file(forged(keys, {"lakebed.sorted": "utf8"}), PATH)
    assert (finding.invariant, finding.severity, finding.file) == (SORTED, Severity.ERROR, PATH)
    assert "ascend" in finding.what
    assert finding.what_to_do


def test_row_groups_that_overlap() -> None:
    assert invariants(forged(["a", "c", "b", "d"], {"lakebed.sorted": "utf8"}, row_group=2)) == [READABLE]


def test_marks_that_contradict_each_other_or_are_missing() -> None:
    assert invariants(forged(["a", "b"], {"lakebed.sorted": "utf8"}, sorting=False)) == [MARKED]
    (finding,) = check_sorted_file(forged(["a", "b"], {}), PATH)
    assert (finding.invariant, finding.severity) == (MARKED, Severity.WARNING)
    assert check_sorted_file(forged(["b", "a"], {}), PATH, require_mark=False) == []


def test_footers_that_deny_keys() -> None:
    bloom = DynamicBloomFilter.build(["a"], Sizing(10, 1e-3, 10)).to_base64()
    marks = {"lakebed.sorted": "utf8", FOOTER_KEY: bloom, TYPE_CODE_KEY: "DYNAMIC_V0", MAX_KEY: "a"}
    found = check_sorted_file(forged(["a", "b", "c"], marks), PATH)
    assert [finding.invariant for finding in found] == [KEY_MARKS, KEY_MARKS]
    assert "2 keys" in found[0].what
    assert "'c'" in found[1].what


def test_files_that_cannot_be_read() -> None:
    storage = forged(["a"], {"lakebed.sorted": "utf8"})
    storage.put(PATH, storage.read(PATH)[:-9])
    assert invariants(storage) == [READABLE]
    assert [finding.what for finding in check_sorted_file(MemoryStorage(), PATH)] == ["the file is not there"]


def test_files_of_real_hudi_promise_nothing(golden: Callable[[str], Path]) -> None:
    for name in ("mor_parquet_v9", "mor_avro_v9", "orc_mor_v9"):
        storage = LocalStorage(golden(name))
        for info in storage.list("", recursive=True):
            if ".hoodie/" not in info.path and (".log." in info.name or info.name.endswith((".parquet", ".orc"))):
                found = check_sorted_file(storage, info.path)
                assert {finding.invariant for finding in found} <= {MARKED}
                assert check_sorted_file(storage, info.path, require_mark=False) == []
