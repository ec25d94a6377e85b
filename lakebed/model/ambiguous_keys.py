"""Refuses values whose record key or partition path would equal that of different values.

Hudi joins the texts of values and escapes nothing, so that different values may give one text:

    key of several columns    ("1,b:2", "3") and ("1", "2,b:3")     a:1,b:2,b:3
                              null and "__null__"                   a:__null__,b:1
                              "" and "__empty__"                    a:__empty__,b:1
    path                      null, "" and the folder's own name    __HIVE_DEFAULT_PARTITION__
    path of several columns   ("x/y", "z") and ("x", "y/z")         x/y/z           hive style: only `/b=` in a value
    dates with slashes        "2024-01-02" and "2024/01/02"         2024/01/02
    timestamps as text        micros of one milli                   2024-01-02 03:04:05.678

Rows of one key and path are one row, so a write would lose some of them. Refused are the rare forms: `,b:` in a value,
the marks as texts, "" in a partition column that may be null. A control character in a path is refused with them: no
object store takes it. A writer may allow all of it, as Hudi does. Readers never check. The bytes of a column are
searched at once, and rows looked at only where something is found, so that usual values cost next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.model.bucket_hash import EMPTY_TEXT, NULL_TEXT
from lakebed.model.partition_path import DEFAULT_PARTITION, PartitionFields
from lakebed.model.record_key import KeyGenerator
from lakebed.model.value_text import column_of

_OPTION = "lakebed.allow.ambiguous.keys"
_ALLOW = f"or set {_OPTION}=true to write what Hudi writes, which takes such rows for one."
_CONTROL = r"[\x00-\x1f\x7f]"
_MARKS = {NULL_TEXT: "null", EMPTY_TEXT: "the empty text"}
_PER_MILLI = {"us": 1_000, "ns": 1_000_000}
_SHOWN = 80


def refuse_ambiguous_keys(generator: KeyGenerator, rows: pa.RecordBatch) -> None:
    """`InvalidRequest` for values whose record key other values have, too; unless the generator allows them."""
    if generator.allows_ambiguous or generator.function is not None:
        return
    fields = generator.key_fields
    for number, name in enumerate(fields):
        column = column_of(rows, name)
        if generator.logical_timestamps:
            _refuse_cut_times(column, f"the key column {name!r}")
        text = _Texts.of(column) if len(fields) > 1 else None
        if text is None:
            continue
        for mark, meaning in _MARKS.items():
            if text.has(mark):
                raise _refused(f"the key column {name!r} holds {mark!r}, which keys have for {meaning}")
        for following in _around(fields, number) if b"," in text.raw else ():
            value = text.first_with(f",{following}:")
            if value is not None:
                raise _refused(
                    f"the key column {name!r} holds {_shown(value)}: with ',{following}:' in it, other values have the "
                    f"same record key"
                )


def refuse_ambiguous_paths(generator: KeyGenerator, rows: pa.RecordBatch, declared: pa.Schema) -> None:
    """The same for partition paths. `declared` is the schema that states which partition columns may be null."""
    folders = generator.partition
    if generator.allows_ambiguous:
        return
    kinds = folders.types or (None,) * len(folders.fields)
    for number, (name, kind) in enumerate(zip(folders.fields, kinds, strict=True)):
        if kind == "TIMESTAMP":
            continue
        column = column_of(rows, name)
        if folders.logical_timestamps:
            _refuse_cut_times(column, f"the partition column {name!r}")
        text, nullable = _Texts.of(column), _may_be_null(declared, name)
        if text is not None:
            _refuse_text(folders, number, text, nullable=nullable)
        elif nullable and _is_binary(column.type) and pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
            raise _refused(
                f"the partition column {name!r} holds empty bytes, whose folder is that for null", "Write null instead,"
            )


def _around(fields: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The columns whose beginning a value must not look like: its own, and that of the next one.

    A text of values without these is read in one way only: the first position where a reading differs would have to be
    in such a value, or every later column would have to start one value later than it does, and there are not enough.
    """
    return fields[max(number, 1) : number + 2]


def _refuse_text(folders: PartitionFields, number: int, text: _Texts, *, nullable: bool) -> None:
    where = f"the partition column {folders.fields[number]!r}"
    if text.has(DEFAULT_PARTITION):
        raise _refused(f"{where} holds {DEFAULT_PARTITION!r}, the name of the folder for null", "Write null instead,")
    if nullable and text.has(""):
        raise _refused(f"{where} holds the empty text, whose folder is that for null", "Write null instead,")
    if folders.url_encode:
        return
    control = text.first_with_control()
    if control is not None:
        raise _refused(
            f"{where} holds {_shown(control)}, with a control character, which object stores take in no path",
            "Make the table with hoodie.datasource.write.partitionpath.urlencode=true, clean the column,",
        )
    for cut in _cuts(folders, number):
        value = text.first_with(cut)
        if value is not None:
            raise _refused(
                f"{where} holds {_shown(value)}: with {cut!r} in it, other values have the same partition path",
                "Make the table with hoodie.datasource.write.partitionpath.urlencode=true, clean the column,",
            )


def _cuts(folders: PartitionFields, number: int) -> tuple[str, ...]:
    """What in a value looks like the end of it."""
    if len(folders.fields) == 1:
        return ("/",) if folders.slash_dates else ()
    return tuple(f"/{name}=" for name in _around(folders.fields, number)) if folders.hive_style else ("/",)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _refuse_cut_times(column: Any, what: str) -> None:
    kind = column.type
    scale = _PER_MILLI.get(kind.unit) if pa.types.is_timestamp(kind) and kind.tz is not None else None
    if scale is None:
        return
    stored = column.cast(pa.int64())
    if pc.any(pc.not_equal(pc.multiply(pc.divide(stored, scale), scale), stored)).as_py():
        raise _refused(f"{what} holds times finer than a millisecond, which their text leaves out", "Round them,")


@dataclass(frozen=True, slots=True)
class _Texts:
    """A column of text, the bytes of all its values behind one another, and how many each has."""

    column: Any
    raw: bytes
    lengths: npt.NDArray[np.int32]

    @classmethod
    def of(cls, column: Any) -> _Texts | None:
        """None for other types: their texts have none of the characters in question."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.dictionary_decode(), kind.value_type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            column, kind = column.cast(pa.string()), pa.string()
        if not pa.types.is_string(kind):
            return None
        _, offset_buffer, data = column.buffers()
        if data is None or not len(column):
            return cls(column, b"", np.zeros(len(column), np.int32))
        offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
        raw = data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
        return cls(column, bytes(raw), np.diff(offsets))

    def first_with(self, wanted: str) -> str | None:
        """The first value that contains a text."""
        if wanted.encode() not in self.raw:
            return None
        return _first(self.column, pc.match_substring(self.column, wanted))

    def has(self, wanted: str) -> bool:
        """Whether a value is that text."""
        if not (self.lengths == len(wanted.encode())).any():
            return False
        return bool(pc.any(pc.equal(self.column, wanted)).as_py())

    def first_with_control(self) -> str | None:
        """The first value that contains a control character."""
        codes = np.frombuffer(self.raw, np.uint8)
        if not len(codes) or (codes.min() >= 0x20 and b"\x7f" not in self.raw):
            return None
        return _first(self.column, pc.match_substring_regex(self.column, _CONTROL))


def _first(column: Any, chosen: Any) -> str | None:
    found = column.filter(chosen)
    return found[0].as_py() if len(found) else None


def _may_be_null(schema: pa.Schema, name: str) -> bool:
    """Whether a column of a dotted name, or a struct around it, is declared as nullable."""
    first, *rest = [name] if name in schema.names else name.split(".")
    field = schema.field(first)
    nullable = field.nullable
    for part in rest:
        field = field.type.field(part)
        nullable = nullable or field.nullable
    return bool(nullable)


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


def _refused(what: str, way_out: str = "Write another text,") -> InvalidRequest:
    return InvalidRequest(what, hint=f"Nothing was written. {way_out} {_ALLOW}")
