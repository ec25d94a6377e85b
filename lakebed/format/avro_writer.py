"""Arrow columns into Avro records: the mirror of `avro_columns`, with the loop over fields and not over rows.

    a field of all rows    ->  pieces: Arrow arrays of bytes with one element per row, or one constant for all
    a row                  =   its pieces, one after the other
    a frame                =   int32 length | the row                          what an Avro block is made of

A number becomes a piece of one to ten bytes per row, a string two pieces (length, bytes), an optional value a constant
branch byte and the value's pieces. Arrow then joins all pieces of a row in one pass, so nothing is copied per field.
Rows without a value are encoded apart: those that have one are encoded densely and spread out again. Items of arrays
and maps are encoded as a column of their own; a row's items lie next to each other, so its bytes are a slice of that.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.model.schema import avro_to_arrow, load_avro

Piece = Any  # a large_binary array with one element per row and no nulls, or a large_binary scalar
_BYTES = pa.large_binary()
_EMPTY = pa.scalar(b"", _BYTES)


def encode_frames_of(batch: pa.RecordBatch, schema_json: str) -> pa.Buffer:
    """Every row as a frame; the columns are those of the schema, by name."""
    encoder = _compiled(schema_json)
    pieces = encoder.pieces(pa.StructArray.from_arrays(_columns(batch, encoder.schema), fields=list(encoder.schema)))
    lengths = sum((_lengths(piece, batch.num_rows) for piece in pieces), np.zeros(batch.num_rows, np.int64))
    if batch.num_rows and int(lengths.max()) >= 1 << 31:
        raise InvalidRequest("a row is larger than an Avro block can hold")
    framed = _join([_fixed(lengths.astype(">i4").view(np.uint8).reshape(-1, 4)), *pieces], batch.num_rows)
    return _data(framed)


def encode_records(batch: pa.RecordBatch, schema_json: str) -> pa.Array:
    """Every row as bare Avro binary."""
    encoder = _compiled(schema_json)
    columns = _columns(batch, encoder.schema)
    return _join(encoder.pieces(pa.StructArray.from_arrays(columns, fields=list(encoder.schema))), batch.num_rows)


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            raise InvalidRequest(f"rows have no column {field.name!r}")
        try:
            columns.append(batch.column(place).cast(field.type))
        except pa.ArrowException as error:
            raise InvalidRequest(f"the column {field.name!r} does not fit {field.type}: {error}") from error
    return columns


# --- pieces -----------------------------------------------------------------------------------------------------------


def _join(pieces: Sequence[Piece], rows: int) -> pa.Array:
    """The pieces of every row, one after the other."""
    if any(isinstance(piece, pa.Array) for piece in pieces):
        return pc.binary_join_element_wise(*pieces, _EMPTY)
    whole = b"".join(piece.as_py() for piece in pieces)
    return _fixed(np.tile(np.frombuffer(whole, np.uint8), (rows, 1)).reshape(rows, len(whole)))


def _lengths(piece: Piece, rows: int) -> npt.NDArray[np.int64]:
    if isinstance(piece, pa.Array):
        return np.diff(_offsets(piece))
    return np.full(rows, len(piece.as_py()), dtype=np.int64)


def _offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]


def _data(array: pa.Array) -> pa.Buffer:
    """The bytes of all elements."""
    offsets, data = _offsets(array), array.buffers()[2]
    if data is None or not len(array):
        return pa.py_buffer(b"")
    return data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _ragged(ends: npt.NDArray[np.int64], data: Any) -> pa.Array:
    offsets = np.concatenate((np.zeros(1, np.int64), ends))
    return pa.Array.from_buffers(_BYTES, len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _fixed(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """A row of the matrix per element."""
    rows, width = matrix.shape
    return _ragged(np.arange(1, rows + 1, dtype=np.int64) * width, np.ascontiguousarray(matrix))


def _varints(values: npt.NDArray[np.int64]) -> pa.Array:
    """Numbers in zigzag form, seven bits a byte, lowest first."""
    words = ((values << 1) ^ (values >> 63)).view(np.uint64)
    highest = int(words.max()) if len(words) else 0
    widths = np.ones(len(words), dtype=np.int64)
    steps = max(1, -(-highest.bit_length() // 7))
    for step in range(1, steps):
        widths += words >= np.uint64(1) << np.uint64(7 * step)
    ends = np.cumsum(widths)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    starts = ends - widths
    for step in range(steps):
        rows = np.flatnonzero(widths > step) if step else slice(None)
        low = ((words[rows] >> np.uint64(7 * step)) & np.uint64(0x7F)).astype(np.uint8)
        low |= (widths[rows] > step + 1).astype(np.uint8) << 7
        out[starts[rows] + step] = low
    return _ragged(ends, out)


def _numbers(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of a fixed-width array without nulls, over Arrow's own memory."""
    if not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


# --- one encoder per Avro type ----------------------------------------------------------------------------------------


class Encoder(ABC):
    """Turns an array without nulls into pieces."""

    @abstractmethod
    def pieces(self, array: pa.Array) -> list[Piece]: ...


class _Null(Encoder):
    def pieces(self, array: pa.Array) -> list[Piece]:  # noqa: ARG002 (a null takes no bytes)
        return [_EMPTY]


class _Boolean(Encoder):
    def pieces(self, array: pa.Array) -> list[Piece]:
        return [_fixed(_numbers(array.cast(pa.uint8()), np.uint8).reshape(-1, 1))]


class _Integer(Encoder):
    def pieces(self, array: pa.Array) -> list[Piece]:
        width = array.type.bit_width // 8
        return [_varints(_numbers(array, np.dtype(f"<i{width}")).astype(np.int64))]


class _Float(Encoder):
    def pieces(self, array: pa.Array) -> list[Piece]:
        width = array.type.bit_width // 8
        return [_fixed(_numbers(array, np.dtype(f"V{width}")).view(np.uint8).reshape(-1, width))]


class _Bytes(Encoder):
    def pieces(self, array: pa.Array) -> list[Piece]:
        values = array.cast(_BYTES)
        return [_varints(np.diff(_offsets(values))), values]


class _Fixed(Encoder):
    def pieces(self, array: pa.Array) -> list[Piece]:
        width = array.type.byte_width
        return [_fixed(_numbers(array, np.dtype(f"V{width}")).view(np.uint8).reshape(-1, width))]


class _Enum(Encoder):
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def pieces(self, array: pa.Array) -> list[Piece]:
        index = pc.index_in(array, self._symbols)
        if index.null_count:
            raise InvalidRequest("a value is not one of its enum's symbols")
        return [_varints(_numbers(index, np.int32).astype(np.int64))]


class _Decimal(Encoder):
    """Big-endian two's complement, as wide as the fixed type or as the precision needs."""

    def __init__(self, size: int | None) -> None:
        self._size = size

    def pieces(self, array: pa.Array) -> list[Piece]:
        size = self._size if self._size is not None else _decimal_bytes(array.type.precision)
        raw = _numbers(array, np.dtype("V16")).view(np.uint8).reshape(-1, 16)
        out = raw[:, :size][:, ::-1]
        if size > 16:
            sign = np.where(raw[:, 15:] >= 0x80, np.uint8(0xFF), np.uint8(0))
            out = np.concatenate((np.repeat(sign, size - 16, axis=1), raw[:, ::-1]), axis=1)
        length = [] if self._size is not None else [pa.scalar(bytes([2 * size]), _BYTES)]
        return [*length, _fixed(out)]


class _Optional(Encoder):
    """A union of null and one type; a union of one type alone has no null branch."""

    def __init__(self, item: Encoder, value_branch: int, null_branch: int | None) -> None:
        self._item = item
        self._value = pa.scalar(bytes([2 * value_branch]), _BYTES)
        self._null = None if null_branch is None else pa.scalar(bytes([2 * null_branch]), _BYTES)

    def pieces(self, array: pa.Array) -> list[Piece]:
        if not array.null_count:
            return [self._value, *self._item.pieces(array)]
        if self._null is None:
            raise InvalidRequest("a value that must be there is null")
        if array.null_count == len(array):
            return [self._null]
        valid = _numbers(array.is_valid().cast(pa.uint8()), np.uint8).astype(np.bool_)
        present = array.drop_null()
        dense = _join([self._value, *self._item.pieces(present)], len(present))
        places = np.cumsum(valid, dtype=np.int64) - 1
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        index = pa.Array.from_buffers(pa.int64(), len(valid), [bits, pa.py_buffer(places)])
        return [dense.take(index).fill_null(self._null)]


class _Required(Encoder):
    """A type outside any union."""

    def __init__(self, item: Encoder, name: str) -> None:
        self._item = item
        self._name = name

    def pieces(self, array: pa.Array) -> list[Piece]:
        if array.null_count:
            raise InvalidRequest(f"the column {self._name!r} must not be null")
        return self._item.pieces(array)


class RecordEncoder(Encoder):
    """A record: the pieces of its fields in turn."""

    def __init__(self, schema: pa.Schema, fields: Sequence[Encoder]) -> None:
        self.schema = schema
        self._fields = fields

    def pieces(self, array: pa.Array) -> list[Piece]:
        children = array.flatten()
        pieces = [piece for encoder, child in zip(self._fields, children, strict=True) for piece in encoder.pieces(child)]
        return pieces or [_EMPTY]


class _Repeated(Encoder):
    """An array or a map: count and items as one block, then the empty block that ends it."""

    def __init__(self, item: Encoder) -> None:
        self._item = item

    def pieces(self, array: pa.Array) -> list[Piece]:
        offsets = _numbers(array.offsets, np.int32).astype(np.int64)
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        items = self._items(array, first, count)
        encoded = _join(self._item.pieces(items), count)
        ends = _offsets(encoded)
        spans = ends[offsets - first]
        body = pa.Array.from_buffers(_BYTES, len(array), [None, pa.py_buffer(spans), encoded.buffers()[2]])
        counts = np.diff(offsets)
        some = np.cumsum(counts > 0, dtype=np.int64)
        end_of_items = _ragged(some, np.zeros(int(some[-1]) if len(some) else 0, np.uint8))
        return [_varints(counts), body, end_of_items]

    def _items(self, array: pa.Array, first: int, count: int) -> pa.Array:
        return array.values.slice(first, count)


# --- from schemas -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _compiled(schema_json: str) -> RecordEncoder:
    loaded = load_avro(schema_json)
    arrow = avro_to_arrow(loaded)
    return _Compiler().record(loaded, "", pa.struct(list(arrow)))


class _Compiler:
    """Walks the Avro schema beside its Arrow type, which has been checked by `avro_to_arrow` already."""

    def __init__(self) -> None:
        self._named: dict[str, Encoder] = {}

    def record(self, schema: Mapping[str, Any], namespace: str, kind: pa.DataType) -> RecordEncoder:
        name, space = _full_name(schema, namespace)
        fields = [
            self._field(raw["type"], space, field.type, raw["name"])
            for raw, field in zip(schema["fields"], kind, strict=True)
        ]
        encoder = RecordEncoder(pa.schema(list(kind)), fields)
        self._named[name] = encoder
        return encoder

    def _field(self, schema: Any, namespace: str, kind: pa.DataType, name: str) -> Encoder:
        while isinstance(schema, Mapping) and isinstance(schema.get("type"), (list, Mapping)):
            schema = schema["type"]
        if isinstance(schema, list):
            branches = [place for place, branch in enumerate(schema) if branch != "null"]
            if not branches:
                return _Constant(b"\x00")
            item = self._encoder(schema[branches[0]], namespace, kind)
            null = next((place for place, branch in enumerate(schema) if branch == "null"), None)
            return _Optional(item, branches[0], null)
        if schema == "null":
            return _Null()
        return _Required(self._encoder(schema, namespace, kind), name)

    def _encoder(self, schema: Any, namespace: str, kind: pa.DataType) -> Encoder:
        word = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(word, str):
            return self._encoder(word, namespace, kind)
        if isinstance(schema, Mapping):
            found = self._complex(schema, word, namespace, kind)
            if found is not None:
                return found
        leaf = _leaf(word, kind)
        if leaf is not None:
            return leaf
        full = word if "." in word or not namespace else f"{namespace}.{word}"
        return self._named[full] if full in self._named else self._named[word]

    def _complex(self, schema: Mapping[str, Any], word: str, namespace: str, kind: pa.DataType) -> Encoder | None:
        if word in ("record", "error"):
            return self.record(schema, namespace, kind)
        if word == "array":
            return _Repeated(self._field(schema["items"], namespace, kind.value_type, "element"))
        if word == "map":
            entry = pa.schema([kind.key_field, kind.item_field])
            value = self._field(schema["values"], namespace, kind.item_type, "value")
            return _Repeated(RecordEncoder(entry, [_Bytes(), value]))
        named: Encoder | None = None
        if word == "fixed":
            named = _Decimal(schema["size"]) if pa.types.is_decimal(kind) else _Fixed()
        elif word == "enum":
            named = _Enum(schema["symbols"])
        if named is not None:
            self._named[_full_name(schema, namespace)[0]] = named
        return named


class _Constant(Encoder):
    """A union of null alone."""

    def __init__(self, data: bytes) -> None:
        self._piece = pa.scalar(data, _BYTES)

    def pieces(self, array: pa.Array) -> list[Piece]:  # noqa: ARG002
        return [self._piece]


def _leaf(word: str, kind: pa.DataType) -> Encoder | None:
    if word == "bytes" and pa.types.is_decimal(kind):
        return _Decimal(None)
    makers: Mapping[str, type[Encoder]] = {
        "null": _Null,
        "boolean": _Boolean,
        "int": _Integer,
        "long": _Integer,
        "float": _Float,
        "double": _Float,
        "bytes": _Bytes,
        "string": _Bytes,
    }
    return makers[word]() if word in makers else None


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    name, space = schema["name"], schema.get("namespace", namespace)
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{space}.{name}" if space else name), space


def _decimal_bytes(precision: int) -> int:
    """The fewest bytes that hold every number of so many digits, with its sign."""
    return ((10**precision).bit_length() + 8) // 8
