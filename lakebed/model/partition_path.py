r"""The partition path of every row, as Hudi's key generators write it.

    plain        de/2024-01-01               several fields are joined by `/`
    hive style   country=de/day=2024-01-01
    url encoded  a b/c -> a b%2Fc            control characters and "#%'*/:=?\{[]^ only; blanks stay
    null or ""   __HIVE_DEFAULT_PARTITION__  but a null time is the time 1 of its unit
    TIMESTAMP    2024/01/31                  the value formatted by a date pattern

Work is done per distinct value: a batch has many rows and few folders. Paths come from data, so each is checked to stay
inside the table and out of `.hoodie` before anything is written under it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.model.partition_time import TimeFolders
from lakebed.model.value_text import column_of, value_text

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_BAD_PATH = re.compile(r"(^|/)\.{0,2}(/|$)|^\.hoodie|[\\\x00]")


@dataclass(frozen=True, slots=True)
class PartitionFields:
    """A table's configuration of its folders. `times` formats those fields whose type is TIMESTAMP."""

    fields: tuple[str, ...] = ()
    types: tuple[str | None, ...] = ()
    hive_style: bool = False
    url_encode: bool = False
    slash_dates: bool = False
    logical_timestamps: bool = False
    times: TimeFolders | None = None

    def paths(self, batch: pa.RecordBatch) -> pa.Array:
        """The partition path of every row."""
        if not self.fields:
            return pa.array([""], pa.string()).take(pa.nulls(batch.num_rows, pa.int32()).fill_null(0))
        kinds = self.types or (None,) * len(self.fields)
        segments = [self._segments(batch, name, kind) for name, kind in zip(self.fields, kinds, strict=True)]
        paths = segments[0] if len(segments) == 1 else pc.binary_join_element_wise(*segments, "/")
        check_paths(paths)
        return paths

    def _segments(self, batch: pa.RecordBatch, name: str, kind: str | None) -> Any:
        column = column_of(batch, name)
        if kind == "TIMESTAMP":
            if self.times is None:
                raise InvalidRequest(
                    f"the partition column {name!r} is of type TIMESTAMP, and nothing says how it is formatted",
                    hint="Set hoodie.keygen.timebased.timestamp.type and hoodie.keygen.timebased.output.dateformat.",
                )
            texts = self.times.texts(column, name)
        else:
            texts = value_text(column, name, logical_timestamps=self.logical_timestamps)
        encoded = texts.dictionary_encode(null_encoding="encode")
        folders = [self._segment(name, text, kind) for text in encoded.dictionary.to_pylist()]
        return pa.array(folders, pa.string()).take(encoded.indices)

    def _segment(self, name: str, text: str | None, kind: str | None) -> str:
        """One value as a folder."""
        value = text or DEFAULT_PARTITION
        if self.url_encode:
            value = escape(value)
        if self.hive_style:
            value = f"{name}={value}"
        if self.slash_dates and len(self.fields) == 1 and kind != "TIMESTAMP":
            value = value.replace("-", "/")
        return value


def escape(text: str) -> str:
    """Hive's escaping of path names."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def check_paths(paths: Any) -> None:
    """Refuse paths that would leave the table, hit its metadata, or that stores spell differently."""
    for path in pc.unique(paths).to_pylist():
        if path and _BAD_PATH.search(path):
            raise InvalidRequest(
                f"the partition path {path!r} cannot be a folder of the table",
                hint="Clean the partition column, or make the table with hive-style folders (for dots) or with "
                "hoodie.datasource.write.partitionpath.urlencode=true (for slashes).",
            )


def flag(properties: Mapping[str, str], key: str) -> bool:
    """Whether a property is `true`."""
    return str(properties.get(key, "")).strip().lower() == "true"
