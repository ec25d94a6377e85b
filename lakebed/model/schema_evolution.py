"""Reads a file that was written under another schema: file columns in, reader columns out.

`resolve` compares the two schemas once and returns a `Projection`; applying it to a batch costs nothing for columns
that did not change. Fields are matched by name at every level of nesting (schema on read passes the old names in
`renames`), missing ones become null, and types follow the promotions Hudi allows: whole numbers to wider ones, to
floating point, to decimal, to text; text to date or decimal; decimals to wider decimals. Float to double goes through
its decimal text, as in Hudi, so that 1.1 stays 1.1. The spelling of list elements never matters: old two-level lists
come out of Parquet as `list<array>`, others as `list<element>` or `list<item>`.

A writer names the columns whose values count to the last digit (`exact`: those of keys, partitions and the order of
rows). Their numbers and times may change type, even to a narrower one, and a value that this would change is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.model.avro_types import is_list_like
from lakebed.model.java_text import java_floats
from lakebed.model.nested_cast import cast_column

Renames = Mapping[str, str | None]
"""Dotted reader path (`st.b`, `arr.element.x`, `m.value.q`) -> the field's name in the file, or None: not in it."""

_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Projection:
    """How batches of one file become batches of the reader's schema."""

    schema: pa.Schema
    columns: tuple[str, ...]
    """What to read from the file, in reader order, without the columns it lacks."""
    is_identity: bool
    file: str | None = None
    _steps: tuple[tuple[str | None, _Convert | None], ...] = field(default=(), repr=False)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._steps:
            return batch.select([])
        if self.is_identity and batch.schema.equals(self.schema):
            return batch
        arrays = []
        for (name, convert), wanted in zip(self._steps, self.schema, strict=True):
            if name is None:
                arrays.append(pa.nulls(batch.num_rows, wanted.type))
                continue
            position = batch.schema.get_field_index(name)
            if position < 0:
                raise CorruptTable(f"the column {name!r} is missing from a batch", file=self.file)
            array = batch.column(position)
            arrays.append(array if convert is None else self._convert(convert, decoded(array), wanted))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema_of(arrays))

    def _schema_of(self, arrays: list[Any]) -> pa.Schema:
        """The reader's schema, where dictionary-encoded columns stay encoded."""
        schema = self.schema
        for position, array in enumerate(arrays):
            if pa.types.is_dictionary(array.type):
                schema = schema.set(position, schema.field(position).with_type(array.type))
        return schema

    def _convert(self, convert: _Convert, array: Any, wanted: pa.Field) -> Any:
        try:
            return convert(array)
        except pa.ArrowException as error:
            message = f"the column {wanted.name!r} holds a value that is no {wanted.type}: {error}"
            raise CorruptTable(message, file=self.file) from error


def resolve(
    file_schema: pa.Schema,
    reader_schema: pa.Schema,
    *,
    renames: Renames | None = None,
    file: str | None = None,
    exact: Collection[str] = (),
) -> Projection:
    """The projection from a file's schema to the wanted columns; `UnsupportedFormat` where types do not fit.

    `exact` are the dotted columns of a write whose values must not change on the way: `InvalidRequest` if one would.
    """
    reader_schema = reader_schema.remove_metadata()
    found = {column.name: column for column in file_schema}
    if len(found) < len(file_schema):
        raise CorruptTable("a file has two columns of one name", file=file)
    resolver = _Resolver(renames or {}, file, frozenset(exact))
    steps: list[tuple[str | None, _Convert | None]] = []
    for wanted in reader_schema:
        name = resolver.name_in_file(wanted.name, wanted.name)
        source = found.get(name) if name is not None else None
        if source is None:
            resolver.check_may_be_missing(wanted, wanted.name)
            steps.append((None, None))
        else:
            steps.append((source.name, resolver.convert(source.type, wanted.type, wanted.name)))
    names = tuple(dict.fromkeys(name for name, _ in steps if name is not None))
    identity = len(steps) > 0 and all(
        convert is None and name == wanted.name for (name, convert), wanted in zip(steps, reader_schema, strict=True)
    )
    return Projection(reader_schema, names, identity, file, tuple(steps))


def decoded(array: Any) -> Any:
    """An array of the values themselves, whether it came as numbers of a dictionary or not."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


class _Resolver:
    def __init__(self, renames: Renames, file: str | None, exact: frozenset[str] = frozenset()) -> None:
        self._renames = renames
        self._file = file
        self._exact = exact

    def name_in_file(self, path: str, name: str) -> str | None:
        return self._renames.get(path, name)

    def check_may_be_missing(self, wanted: pa.Field, path: str) -> None:
        if not wanted.nullable:
            raise CorruptTable(f"the column {path!r} may not be null, and the file does not have it", file=self._file)

    def convert(self, source: pa.DataType, target: pa.DataType, path: str) -> _Convert | None:
        """How to turn one type into the other; None when nothing needs to be done."""
        types = pa.types
        if source.equals(target) and (not types.is_nested(target) or _same_spelling(source, target)):
            return None if not self._renamed_below(path) else self._nested(source, target, path)
        if types.is_dictionary(source):
            then = self.convert(source.value_type, target, path)
            return lambda array: _then(decoded(array), then)
        if types.is_null(source):
            return lambda array: pa.nulls(len(array), target)
        if types.is_nested(source) or types.is_nested(target):
            return self._nested(source, target, path)
        convert = (_exactly(source, target, path) if path in self._exact else None) or _scalar(source, target)
        if convert is None:
            raise UnsupportedFormat(
                f"the column {path!r} is {source} in the file and cannot be read as {target}", file=self._file
            )
        return convert

    def _renamed_below(self, path: str) -> bool:
        return any(key.startswith(path + ".") for key in self._renames)

    def _nested(self, source: pa.DataType, target: pa.DataType, path: str) -> _Convert:
        types = pa.types
        if types.is_struct(source) and types.is_struct(target):
            return self._struct(source, target, path)
        if types.is_map(source) and types.is_map(target):
            keys = self.convert(source.key_type, target.key_type, f"{path}.key")
            items = self.convert(source.item_type, target.item_type, f"{path}.value")
            return lambda array: _map(array, target, keys, items)
        if is_list_like(source) and is_list_like(target):
            plain = source if types.is_list(source) else pa.list_(source.value_field)
            values = self.convert(source.value_type, target.value_type, f"{path}.element")
            return lambda array: _list(array if plain is source else cast_column(array, plain), target, values)
        raise UnsupportedFormat(
            f"the column {path!r} is {source} in the file and cannot be read as {target}", file=self._file
        )

    def _struct(self, source: pa.DataType, target: pa.DataType, path: str) -> _Convert:
        steps: list[tuple[int | None, pa.Field, _Convert | None]] = []
        for wanted in target:
            below = f"{path}.{wanted.name}"
            name = self.name_in_file(below, wanted.name)
            index = source.get_field_index(name) if name is not None else -1
            if index < 0:
                self.check_may_be_missing(wanted, below)
                steps.append((None, wanted, None))
            else:
                steps.append((index, wanted, self.convert(source.field(index).type, wanted.type, below)))

        def convert(array: Any) -> Any:
            children = [
                pa.nulls(len(array), wanted.type) if index is None else _then(array.field(index), then)
                for index, wanted, then in steps
            ]
            return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array)) if children else array

        return convert


def _same_spelling(source: pa.DataType, target: pa.DataType) -> bool:
    """Arrow's equality ignores the names of list and map children; an exact schema does not."""
    return str(source) == str(target)


def _then(array: Any, convert: _Convert | None) -> Any:
    return array if convert is None else convert(array)


def _mask(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _offsets(array: Any) -> tuple[Any, int, int]:
    """Offsets that start at zero, and the range of child values they span."""
    offsets = array.offsets
    start, end = (offsets[0].as_py(), offsets[-1].as_py()) if len(array) else (0, 0)
    if not len(array):
        offsets = pa.array([0], pa.int32())
    elif start or array.offset:
        offsets = pc.subtract(offsets, start)
    return offsets, start, end - start


def _list(array: Any, target: pa.DataType, values: _Convert | None) -> Any:
    offsets, start, length = _offsets(array)
    plain = pa.list_(target.value_field)
    child = _then(array.values.slice(start, length), values)
    out = pa.ListArray.from_arrays(offsets, child, type=plain, mask=_mask(array))
    return out if plain.equals(target) else cast_column(out, target)


def _map(array: Any, target: pa.DataType, keys: _Convert | None, items: _Convert | None) -> Any:
    offsets, start, length = _offsets(array)
    key_child = _then(array.keys.slice(start, length), keys)
    item_child = _then(array.items.slice(start, length), items)
    return pa.MapArray.from_arrays(offsets, key_child, item_child, type=target, mask=_mask(array))


# --- scalars ----------------------------------------------------------------------------------------------------------


def _scalar(source: pa.DataType, target: pa.DataType) -> _Convert | None:
    types = pa.types
    if types.is_integer(source):
        return _from_integer(source, target)
    if types.is_floating(source):
        return _from_floating(source, target)
    if _is_string(target):
        if types.is_boolean(source) or types.is_decimal(source) or types.is_date(source) or _is_stringlike(source):
            return _cast(target)
        return None
    if _is_stringlike(source):
        return _from_text(source, target)
    if types.is_decimal(source) and types.is_decimal(target):
        return _cast(target)
    if types.is_timestamp(source) and types.is_timestamp(target):
        return lambda array: array.cast(target, safe=False)
    if (types.is_time(source) and types.is_time(target)) or (types.is_date(source) and types.is_date(target)):
        return lambda array: array.cast(target, safe=False)
    return None


def _exactly(source: pa.DataType, target: pa.DataType, path: str) -> _Convert | None:
    """A cast of numbers or times that changes no value; None for other types."""
    types = pa.types
    if types.is_float32(source) and types.is_float64(target):
        return None  # goes through its text, which is what counts
    numbers = all(types.is_integer(kind) or types.is_floating(kind) for kind in (source, target))
    if not numbers and not (types.is_temporal(source) and types.is_temporal(target)):
        return None

    def convert(array: Any) -> Any:
        try:
            return array.cast(target)
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                f"the column {path!r} makes keys, partitions or the order of rows, and is {target} in the table, which "
                f"the data ({source}) does not fit: {error}",
                hint=f"Cast it to {target} yourself, in a way that keeps different values apart.",
            ) from None

    return convert


def _from_integer(source: pa.DataType, target: pa.DataType) -> _Convert | None:
    types = pa.types
    if types.is_integer(target) and target.bit_width >= source.bit_width:
        return _cast(target)
    if types.is_floating(target) and target.bit_width >= 32:
        return lambda array: array.cast(target, safe=False)
    if _is_string(target):
        return _cast(target)
    if types.is_decimal(target):
        return lambda array: array.cast(pa.decimal128(38, 0)).cast(target)
    if (types.is_timestamp(target) or types.is_time64(target)) and source.bit_width == 64:
        return lambda array: array.view(target)
    if (types.is_date32(target) or types.is_time32(target)) and source.bit_width == 32:
        return lambda array: array.view(target)
    return None


def _from_floating(source: pa.DataType, target: pa.DataType) -> _Convert | None:
    types = pa.types
    if types.is_floating(target) and target.bit_width >= source.bit_width:
        through_text = types.is_float32(source) and types.is_float64(target)
        return (lambda array: array.cast(pa.string()).cast(target)) if through_text else _cast(target)
    if _is_string(target):
        return lambda array: java_floats(array).cast(target)
    if types.is_decimal(target):
        return lambda array: array.cast(pa.string()).cast(target, safe=False)
    return None


def _from_text(source: pa.DataType, target: pa.DataType) -> _Convert | None:
    types = pa.types
    if _is_stringlike(target):
        return _cast(target)
    if _is_string(source) and (types.is_date(target) or types.is_decimal(target)):
        return _cast(target)
    return None


def _cast(target: pa.DataType) -> _Convert:
    return lambda array: array.cast(target)


def _is_string(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type))


def _is_stringlike(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        _is_string(data_type)
        or types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_binary_view(data_type)
        or (types.is_fixed_size_binary(data_type) and not types.is_decimal(data_type))
    )
