"""Keys of a MERGE's source in another type than the table's."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRequest
from lakebed.expression.failures import RowFailure
from lakebed.write.merge_into import join_keys
from tests.unit.write.tables import make, values


def test_a_merge_on_a_day_beyond_all_timestamps_failed() -> None:
    schema = pa.schema([("k", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    t = make(schema=schema, record_key="k", ordering=None, partition_by=None)
    days = [dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in (1, 2)]
    t.upsert(pa.table({"k": days, "v": [1, 2]}, schema=schema))
    far = pa.array([2**31 - 1, -(2**31), 19723, None], pa.int32()).cast(pa.date32())
    t.merge(pa.table({"k": far, "v": [1, 2, 3, 4]}), on="t.k = s.k").when_matched_delete().execute()
    assert values(t, "k") == [(days[1],)]


def test_a_failure_of_a_row_left_the_merge_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> pa.Array:
        raise RowFailure("no such value")

    monkeypatch.setattr(join_keys, "cast", fails)
    with pytest.raises(InvalidRequest, match=r"compared with BIGINT: no such value\. Cast the column"):
        join_keys.as_table_values(pa.array([1], pa.int32()), pa.int64())
