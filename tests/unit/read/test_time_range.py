"""Questions about the past after upkeep: exact or refused, and not refused without need."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRequest
from lakebed.format.names import HISTORY_DIR
from lakebed.storage.memory import MemoryStorage
from lakebed.write.create.create_table import NewTable, create_table
from tests.simulation.write_cases import table_on

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
SOON = {
    "hoodie.clean.commits.retained": "3",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


class Written:
    """A table that was written to again and again: "a" each time, and one key of its own."""

    def __init__(self, writes: int, options: dict[str, str] | None, table_type: str = "cow") -> None:
        self.storage = MemoryStorage()
        create_table(self.storage, NewTable("t", SCHEMA, ("id",), (), (), table_type=table_type))
        table = table_on(self.storage)
        self.done = []
        for number in range(writes):
            rows = pa.table({"id": ["a", f"b{number}"], "v": [number, number]}, schema=SCHEMA)
            self.done.append(table.upsert(rows, options=options))

    def completion(self, number: int) -> str:
        return self.done[number].completion_time

    def changes(self, start: int | str, end: int | str | None = None) -> dict[str, int]:
        times = [self.completion(time) if isinstance(time, int) else time for time in (start, end)]
        return self.rows(table_on(self.storage).incremental(*times))

    def as_of(self, number: int) -> dict[str, int]:
        return self.rows(table_on(self.storage).scan(as_of=self.done[number].instant))

    @staticmethod
    def rows(scan: lakebed.Scan) -> dict[str, int]:
        found = scan.to_arrow()
        return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def wanted(self, start: int, end: int) -> dict[str, int]:
        """What was written after one write and up to another."""
        return {**{f"b{number}": number for number in range(start + 1, end + 1)}, "a": end}


def test_an_incremental_query_over_commits_that_were_archived_and_cleaned_is_refused() -> None:
    """With default options: the range would have no rows where as_of is refused."""
    table = Written(45, None)
    writes = table_on(table.storage)._client.completed_writes()
    assert table.done[5].instant < writes[0].requested_time, "archived"
    with pytest.raises(InvalidRequest, match="no longer there"):
        table.as_of(10)
    with pytest.raises(InvalidRequest, match=r"where the range ends, is no longer there.*earliest instant.*any time"):
        table.changes(5, 10)
    assert table.changes(5, 44) == table.changes(5) == table.wanted(5, 44)
    assert table.changes(40, 42) == table.wanted(40, 42)
    assert table.changes("0") == table.changes("0", 44) == table.wanted(-1, 44)
    assert table.changes("2020-01-01") == table.wanted(-1, 44)


@pytest.mark.parametrize(("table_type", "writes", "refusals"), [("cow", 12, 8), ("mor", 7, 0)])
def test_every_range_is_exact_or_refused_at_the_same_end_as_as_of(table_type: str, writes: int, refusals: int) -> None:
    table = Written(writes, SOON, table_type)
    refused, last = 0, writes - 1
    for end in range(writes):
        try:
            assert table.as_of(end) == table.wanted(-1, end)
        except InvalidRequest:
            refused += 1
            for start in range(end):
                with pytest.raises(InvalidRequest, match="no longer there"):
                    table.changes(start, end)
        else:
            for start in range(end):
                assert table.changes(start, end) == table.wanted(start, end)
        assert table.changes(end, end) == {}, "nothing was committed in it"
        assert table.changes(end) == (table.wanted(end, last) if end < last else {})
    assert refused == refusals
    assert table.changes("2020-01-01", "2020-01-02") == {}
    assert table.changes("2999-01-01") == {}


def test_a_history_that_does_not_reach_back() -> None:
    """Rows of writes that nobody knows any more are neither left out nor taken in: the question is refused."""
    table = Written(14, SOON | {"hoodie.clean.automatic": "false"}, "mor")
    for info in list(table.storage.list(HISTORY_DIR)):
        table.storage.delete([info.path])
    assert table.changes("0") == table.wanted(-1, 13)
    with pytest.raises(InvalidRequest, match=r"does not reach back to its write.*The earliest possible start is"):
        table.changes("2020-01-01")
    assert table.changes(12) == table.wanted(12, 13)


def test_every_door_has_the_same_guard() -> None:
    table = Written(14, SOON)
    asked = table_on(table.storage).incremental(table.completion(1), table.completion(2))
    with pytest.raises(InvalidRequest, match="no longer there"):
        asked.plan()
    with pytest.raises(InvalidRequest, match="no longer there"):
        asked.count()
    with pytest.raises(InvalidRequest, match="no longer there"):
        _ = asked.schema
    with pytest.raises(InvalidRequest, match="no longer there"):
        table_on(table.storage).inspect.file_slices(as_of=table.done[2].instant)
