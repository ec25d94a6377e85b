"""Delete blocks of version 1 logs, encoded by columns.

    int32 3 | int32 length | count | per delete: 02 key | 02 partition path | branch, ordering value | 00

The ordering value's branch is the number of its wrapper in Hudi's union. IntWrapper{0} stands for "no value"; several
ordering fields are an array of wrapped values.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from lakebed.errors import InvalidRequest
from lakebed.format.avro.encoders import (
    BooleanEncoder,
    BytesEncoder,
    DecimalEncoder,
    Encoder,
    FloatEncoder,
    IntegerEncoder,
    OptionalEncoder,
)
from lakebed.format.avro.fragments import BYTES, Fragment, data_of, join, varints
from lakebed.format.log.block_content import DELETE_CONTENT_VERSION

_NO_VALUE = pa.scalar(b"\x04\x00", BYTES)  # branch 2, IntWrapper, and the number 0
_ARRAY_BRANCH = 12
_HAS_VALUE, _END = pa.scalar(b"\x02", BYTES), pa.scalar(b"\x00", BYTES)


def encode_deletes(deletes: pa.Table, partition_path: str) -> bytes:
    """The content of a delete block: key, then ordering columns, which are null in all rows or not null in any row.

    With several ordering columns single ones may be null where others are not.
    """
    rows = deletes.num_rows
    keys, *ordering = [column.combine_chunks() for column in deletes.columns]
    path = join([_HAS_VALUE, *BytesEncoder().fragments(pa.array([partition_path], pa.string()))], 1)[0]
    fragments = [
        _HAS_VALUE,
        *BytesEncoder().fragments(keys),
        path,
        *_ordering_pieces(ordering, deletes.column_names[1:], rows),
    ]
    items = data_of(join(fragments, rows))
    count = data_of(varints(np.array([rows], dtype=np.int64)))
    records = b"".join((bytes(count), bytes(items), b"\x00")) if rows else b"\x00"
    return struct.pack(">ii", DELETE_CONTENT_VERSION, len(records)) + records


def _ordering_pieces(columns: list[pa.Array], names: list[str], rows: int) -> list[Fragment]:
    if all(column.null_count == rows for column in columns):
        return [_NO_VALUE]
    wrapped = [_wrapped(column, name) for column, name in zip(columns, names, strict=True)]
    if len(wrapped) == 1:
        branch, encoder, values = wrapped[0]
        if values.null_count:
            raise InvalidRequest("deletes with and without an ordering value cannot share a block")
        return OptionalEncoder(encoder, branch, 0).fragments(values)
    head = bytes([2 * _ARRAY_BRANCH]) + b"\x02" + bytes(data_of(varints(np.array([len(wrapped)], dtype=np.int64))))
    items = [
        fragment
        for branch, encoder, values in wrapped
        for fragment in OptionalEncoder(encoder, branch, 0).fragments(values)
    ]
    return [pa.scalar(head, BYTES), *items, _END]


def _wrapped(column: pa.Array, name: str) -> tuple[int, Encoder, pa.Array]:
    """The branch of a column's wrapper, and its values as the wrapper holds them.

    A timestamp goes as the number it is stored as, which is what Hudi orders rows by.
    """
    kind, types = column.type, pa.types
    try:
        if types.is_boolean(kind):
            return 1, BooleanEncoder(), column
        if types.is_integer(kind) and kind.bit_width <= 32:
            return 2, IntegerEncoder(), column.cast(pa.int32())
        if types.is_integer(kind) or types.is_timestamp(kind):
            return 3, IntegerEncoder(), column.cast(pa.int64())
        if types.is_float32(kind) or types.is_float64(kind):
            return (4 if types.is_float32(kind) else 5), FloatEncoder(), column
        if types.is_binary(kind) or types.is_string(kind):
            return (6 if types.is_binary(kind) else 7), BytesEncoder(), column
        if types.is_date32(kind):
            return 8, IntegerEncoder(), column.cast(pa.int32())
        if types.is_decimal(kind):
            return 9, DecimalEncoder(None), column.cast(pa.decimal128(30, 15))
        if types.is_time(kind):
            return 10, IntegerEncoder(), column.cast(pa.time64("us")).cast(pa.int64())
    except pa.ArrowException as error:
        raise InvalidRequest(f"an ordering value of {name} does not fit a delete block: {error}") from error
    raise InvalidRequest(f"the ordering column {name} has the type {kind}, which deletes cannot carry")
