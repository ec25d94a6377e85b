"""Record keys from columns, as text, on whole batches; the key generator of a table as a plain value.

    SIMPLE, TIMESTAMP, NON_PARTITION, CUSTOM   one key field: its text           several: like COMPLEX
    COMPLEX, GLOBAL_DELETE                     f1:v1,f2:v2     null is __null__, the empty text __empty__
    no key fields                              <requested time>_<task>_<row>, made while writing (`auto_keys`)
    user provided                              a function registered under the name of the table's key generator class

A row whose key is null or empty (in all its parts) cannot be identified: the batch is refused before anything is
written. Readers use the same functions for tables that do not store their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest, UnsupportedFormat
from lakebed.model.bucket_hash import EMPTY_TEXT, NULL_TEXT
from lakebed.model.partition_path import PartitionFields, flag
from lakebed.model.partition_time import TimeFolders
from lakebed.model.value_text import column_of, value_text

LOGICAL_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
PLAIN_SINGLE_KEY = "hoodie.write.complex.keygen.new.encoding"
SLASH_DATES = "hoodie.datasource.write.slash.separated.date.partitioning"
_WAY_OUT = "Nothing was written; fill or drop them."
USER_PROVIDED = "USER_PROVIDED"
_FIRST_VERSION_WITH_NAMED_KEYS = 9
_NAMED = frozenset({"COMPLEX", "GLOBAL_DELETE"})
_WITHOUT_PARTITIONS = frozenset({"NON_PARTITION", "GLOBAL_DELETE"})
_KNOWN = _NAMED | {"SIMPLE", "TIMESTAMP", "NON_PARTITION", "CUSTOM", "HOODIE_TABLE_METADATA", USER_PROVIDED}

KeyFunction = Callable[[pa.RecordBatch], pa.Array]
_FUNCTIONS: dict[str, KeyFunction] = {}


def register_key_generator(name: str, function: KeyFunction) -> None:
    """Register a key function under the class name that tables record: a batch in, its record keys out."""
    _FUNCTIONS[name] = function


def registered_key_generator(name: str) -> KeyFunction | None:
    """The function of a class, by its full name or the last part of it."""
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(name.rpartition(".")[2])


class KeySettings(Protocol):
    """A table's configuration of keys and partitions."""

    @property
    def version(self) -> int: ...
    @property
    def key_fields(self) -> tuple[str, ...]: ...
    @property
    def partition_fields(self) -> tuple[str, ...]: ...
    @property
    def partition_types(self) -> tuple[str | None, ...]: ...
    @property
    def keygen_type(self) -> str | None: ...
    @property
    def keygen_class(self) -> str | None: ...
    @property
    def hive_style(self) -> bool: ...
    @property
    def url_encode(self) -> bool: ...
    @property
    def properties(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """How a table makes keys and partition paths. `is_named` writes a single key as `field:value`, too.

    `allows_ambiguous` lets values be written whose key or path other values have, too (`ambiguous_keys`).
    """

    kind: str
    key_fields: tuple[str, ...] = ()
    is_named: bool = False
    logical_timestamps: bool = False
    function: str | None = None
    allows_ambiguous: bool = False
    partition: PartitionFields = field(default_factory=PartitionFields)

    @property
    def is_keyless(self) -> bool:
        """Whether keys are made while writing instead of from columns."""
        return not self.key_fields and self.function is None

    @property
    def columns(self) -> tuple[str, ...]:
        """The top-level columns that keys and paths are made from."""
        names = (*self.key_fields, *self.partition.fields)
        return tuple(dict.fromkeys(name.partition(".")[0] for name in names))


def key_generator_of(config: KeySettings, options: Mapping[str, str] | None = None) -> KeyGenerator:
    """The key generator of a table; a writer's options may add what the table does not store of it."""
    kind = config.keygen_type or _inferred(config)
    if kind not in _KNOWN:
        raise UnsupportedFormat(
            f"the key generator {kind} is not known", hint="Register one with register_key_generator."
        )
    properties = {**config.properties, **(options or {})}
    logical = flag(properties, LOGICAL_TIMESTAMPS)
    has_paths = bool(config.partition_fields) and kind not in _WITHOUT_PARTITIONS
    types = config.partition_types if kind == "CUSTOM" else ("TIMESTAMP",) * len(config.partition_fields)
    if kind not in ("CUSTOM", "TIMESTAMP"):
        types = ()
    is_named = kind in _NAMED
    if kind == "COMPLEX" and len(config.key_fields) == 1 and config.version < _FIRST_VERSION_WITH_NAMED_KEYS:
        is_named = not flag(properties, PLAIN_SINGLE_KEY)
    return KeyGenerator(
        kind=kind,
        key_fields=config.key_fields,
        is_named=is_named,
        logical_timestamps=logical,
        function=config.keygen_class if kind == USER_PROVIDED else None,
        partition=PartitionFields(
            fields=config.partition_fields if has_paths else (),
            types=types if has_paths else (),
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            slash_dates=flag(properties, SLASH_DATES),
            logical_timestamps=logical,
            times=TimeFolders.from_properties(properties, logical_timestamps=logical),
        ),
    )


def record_key_array(generator: KeyGenerator, batch: pa.RecordBatch) -> pa.Array:
    """The record key of every row; `InvalidRequest` where a row has none."""
    if generator.function is not None:
        return _user_keys(generator.function, batch)
    fields = generator.key_fields
    if not fields:
        raise InvalidRequest("the table has no key columns; its keys are made while writing")
    columns = [column_of(batch, name) for name in fields]
    texts = [
        value_text(column, name, logical_timestamps=generator.logical_timestamps)
        for column, name in zip(columns, fields, strict=True)
    ]
    if len(fields) == 1:
        _check_filled(texts[0], f"the key column {fields[0]!r} is null or empty")
        return pc.binary_join_element_wise(f"{fields[0]}:", texts[0], "") if generator.is_named else texts[0]
    _check_any_filled(texts, fields)
    parts: list[Any] = []
    for name, text in zip(fields, texts, strict=True):
        parts += [f",{name}:" if parts else f"{name}:", _marked(text)]
    return pc.binary_join_element_wise(*parts, "")


def partition_path_array(generator: KeyGenerator, batch: pa.RecordBatch) -> pa.Array:
    """The partition path of every row, checked to lie inside the table."""
    return generator.partition.paths(batch)


def auto_keys(requested_time: str, task: int, first_row: int, rows: int) -> pa.Array:
    """Keys for rows of a table without key columns, unique within the commit and over commits."""
    numbers = pa.array(np.arange(first_row, first_row + rows, dtype=np.int64)).cast(pa.string())
    return pc.binary_join_element_wise(f"{requested_time}_{task}_", numbers, "")


def _inferred(config: KeySettings) -> str:
    """What Hudi takes where a table names no key generator: by the numbers of fields."""
    if config.keygen_class:
        return USER_PROVIDED
    if not config.partition_fields:
        return "NON_PARTITION"
    return "SIMPLE" if len(config.key_fields) <= 1 and len(config.partition_fields) == 1 else "COMPLEX"


def _user_keys(name: str, batch: pa.RecordBatch) -> pa.Array:
    function = registered_key_generator(name)
    if function is None:
        raise InvalidRequest(
            f"the table's key generator {name!r} is not registered",
            hint=f"Call lakebed.register_key_generator({name.rpartition('.')[2]!r}, function) first.",
        )
    keys = function(batch)
    if not isinstance(keys, pa.Array) or len(keys) != batch.num_rows:
        raise InvalidRequest(f"the key generator {name!r} must return an Arrow array with a key for every row")
    texts = value_text(keys, name)
    _check_filled(texts, f"the key generator {name!r} gave null or empty keys")
    return texts


def _marked(text: Any) -> Any:
    """The texts with null and empty spelled out."""
    if text.null_count:
        text = text.fill_null(NULL_TEXT)
    return pc.if_else(pc.equal(text, ""), EMPTY_TEXT, text)


def _is_blank(text: Any) -> Any:
    return pc.equal(pc.fill_null(pc.binary_length(text), 0), 0)


def _check_filled(text: Any, complaint: str) -> None:
    bad = _is_blank(text).true_count
    if bad:
        raise InvalidRequest(
            f"{complaint} in {bad} of {len(text)} rows", hint="Nothing was written; fill or drop them."
        )


def _check_any_filled(texts: list[Any], fields: tuple[str, ...]) -> None:
    blank = _is_blank(texts[0])
    for text in texts[1:]:
        if not blank.true_count:
            return
        blank = pc.and_(blank, _is_blank(text))
    if blank.true_count:
        names = ", ".join(map(repr, fields))
        raise InvalidRequest(
            f"the key columns {names} are all null or empty in {blank.true_count} of {len(blank)} rows",
            hint=_WAY_OUT,
        )
