"""Delete blocks by columns: the bytes of the record-wise encoder."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRequest
from lakebed.format.log.block_content import decode_delete_block
from lakebed.format.log.delete_writer import encode_deletes
from tests.unit.format.record_encoders import encode_delete_block

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int32(), [-5, 7]),
    (pa.int64(), [0, 2**62]),
    (pa.float32(), [0.5, -1.0]),
    (pa.float64(), [0.1, 1e300]),
    (pa.binary(), [b"", b"\xff"]),
    (pa.string(), ["", "ü"]),
    (pa.date32(), [date(1, 1, 1), date(2024, 5, 6)]),
    (pa.time64("us"), [time(1, 2, 3, 4), time(0)]),
    (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]),
]


def table(**ordering: pa.Array) -> pa.Table:
    return pa.table({"_hoodie_record_key": pa.array(["a", "schlüssel" * 20], pa.string()), **ordering})


@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_every_type_has_the_bytes_of_the_plain_encoder(kind: pa.DataType, values: list[Any]) -> None:
    deletes = table(o=pa.array(values, kind))
    assert encode_deletes(deletes, "eu/de") == encode_delete_block(deletes, "eu/de")


def test_decimals_come_back() -> None:
    deletes = table(o=pa.array([Decimal("-1.500"), Decimal("12345.678")], pa.decimal128(8, 3)))
    back = decode_delete_block(encode_deletes(deletes, ""), [deletes.schema.field("o")], "f", 0)
    assert back.column("o").to_pylist() == deletes.column("o").to_pylist()
    huge = table(o=pa.array([Decimal(10**20), Decimal(1)], pa.decimal128(38, 0)))
    with pytest.raises(InvalidRequest, match="does not fit"):
        encode_deletes(huge, "")


def test_no_value_several_values_and_no_rows() -> None:
    none = table(o=pa.nulls(2, pa.int64()))
    two = table(o=pa.array([1, None], pa.int64()), p=pa.array(["x", "y"]))
    for deletes in (table(), none, two, none.slice(0, 0), two.slice(1)):
        assert encode_deletes(deletes, "") == encode_delete_block(deletes, "")


def test_what_a_block_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot share a block"):
        encode_deletes(table(o=pa.array([1, None])), "")
    with pytest.raises(InvalidRequest, match="cannot carry"):
        encode_deletes(table(o=pa.array([[1], [2]])), "")
