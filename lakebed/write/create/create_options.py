"""The properties of a table that is to be created, under the names of Hudi's table properties and write options.

A setting may be an argument, a table property or a write option; two that differ are refused, because it is not known
which one was meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from lakebed.config.option import WORDS
from lakebed.config.table_config import KEY_GENERATOR_TYPES
from lakebed.errors import InvalidRequest
from lakebed.index.kinds import BUCKET, INDEX_KINDS, IndexKind, creatable_kinds, index_kind
from lakebed.index.options import BucketEngine, IndexOptions
from lakebed.model.partition_time import TIME_PREFIXES
from lakebed.model.record_key import USER_PROVIDED, registered_key_generator
from lakebed.txn.mode import mode_named
from lakebed.txn.options import MODE, NEW_TABLES, Concurrency

T = TypeVar("T")

RECORD_KEY = ("hoodie.table.recordkey.fields", "hoodie.datasource.write.recordkey.field")
PARTITION_PATH = ("hoodie.table.partition.fields", "hoodie.datasource.write.partitionpath.field")
ORDERING = (
    "hoodie.table.ordering.fields",
    "hoodie.table.precombine.field",
    "hoodie.datasource.write.precombine.field",
)
TABLE_NAME = ("hoodie.table.name", "hoodie.datasource.write.table.name")
TABLE_TYPE = ("hoodie.table.type", "hoodie.datasource.write.table.type")
LAYOUT = ("hoodie.table.storage.layout",)
VERSION = ("hoodie.table.version", "hoodie.write.table.version")
KEYGEN_TYPE = ("hoodie.table.keygenerator.type", "hoodie.datasource.write.keygenerator.type")
KEYGEN_CLASS = ("hoodie.table.keygenerator.class", "hoodie.datasource.write.keygenerator.class")
INDEX_TYPE, ENGINE, NUM_BUCKETS = (
    "hoodie.index.type",
    "hoodie.index.bucket.engine",
    "hoodie.bucket.index.num.buckets",
)
SETTLED = frozenset(
    (*RECORD_KEY, *PARTITION_PATH, *ORDERING, *TABLE_NAME, *TABLE_TYPE, *LAYOUT, *VERSION, *KEYGEN_TYPE, *KEYGEN_CLASS)
) | {INDEX_TYPE, ENGINE, NUM_BUCKETS, MODE}
"""The keys that are read here; the table stores each setting under its first name."""

_BUCKETS = {"bucket": (BUCKET, BucketEngine.SIMPLE), "consistent_bucket": (BUCKET, BucketEngine.CONSISTENT_HASHING)}
_TABLE_TYPES = {"MERGE_ON_READ": "mor", "COPY_ON_WRITE": "cow", "MOR": "mor", "COW": "cow"}
_TYPES = tuple(KEY_GENERATOR_TYPES.values())
_FIELD_TYPES = ("SIMPLE", "TIMESTAMP")


def stated(properties: Mapping[str, str], keys: Sequence[str]) -> str | None:
    """The value of a setting that has several names."""
    found = {key: str(properties[key]).strip() for key in keys if str(properties.get(key) or "").strip()}
    if len(set(found.values())) > 1:
        pairs = " and ".join(f"{key}={value}" for key, value in found.items())
        raise InvalidRequest(f"{pairs} differ", hint="Give one of them.")
    return next(iter(found.values()), None)


def columns_option(
    what: str, argument: tuple[str, ...], properties: Mapping[str, str], keys: Sequence[str]
) -> tuple[str, ...]:
    """Columns from an argument or from properties."""
    names = WORDS.parse(stated(properties, keys) or "")
    return agreed(what, argument or None, names or None, keys[0]) or ()


def agreed(what: str, argument: T | None, value: T | None, key: str) -> T | None:
    """The value of an argument and a property for the same setting, which must not differ."""
    if argument is not None and value is not None and argument != value:
        raise InvalidRequest(f"{what}={_shown(argument)} and {key}={_shown(value)} differ", hint=f"Leave {key} out.")
    return argument if argument is not None else value


def table_type_option(properties: Mapping[str, str]) -> str | None:
    """`mor` or `cow`, if the properties state it."""
    text = stated(properties, TABLE_TYPE)
    if text is not None and text.upper() not in _TABLE_TYPES:
        raise InvalidRequest(f"{text!r} is no table type", hint="Use MERGE_ON_READ or COPY_ON_WRITE.")
    return _TABLE_TYPES[text.upper()] if text is not None else None


def merge_mode_option(properties: Mapping[str, str]) -> Concurrency:
    """The concurrency mode of the table, that of new tables if the properties do not state one."""
    text = stated(properties, (MODE,))
    return NEW_TABLES if text is None else mode_named(text)


def index_option(properties: Mapping[str, str]) -> tuple[str | None, int | None]:
    """The name of the index and its number of buckets, if the properties state them."""
    options = IndexOptions.from_properties({key: str(value) for key, value in properties.items() if key in SETTLED})
    has_kind, has_engine = (stated(properties, (key,)) is not None for key in (INDEX_TYPE, ENGINE))
    if not has_kind and not has_engine:
        return None, options.num_buckets
    wanted = (options.kind if has_kind else BUCKET, options.engine)
    if wanted[0] != BUCKET:
        return _create_name(wanted[0]), options.num_buckets
    return next(name for name, pair in _BUCKETS.items() if pair == wanted), options.num_buckets


def _create_name(kind: str) -> str:
    return kind.lower().removesuffix("_index")


def index_named(name: str) -> tuple[IndexKind, BucketEngine | None]:
    """The index kind of the argument `index=` of `create`, and its bucket engine; only that kind is loaded."""
    kind, engine = _BUCKETS.get(name, (None, None))
    for word in (name, f"{name}_index"):
        known = kind or INDEX_KINDS.name_of(word)
        if known is not None and (kind or _create_name(known) == name) and index_kind(known).can_create:
            return index_kind(known), engine
    others = [_create_name(one.name) for one in creatable_kinds() if one.name != BUCKET]
    installed = [_create_name(one) for one in INDEX_KINDS.names if one not in INDEX_KINDS.names_here]
    raise InvalidRequest(
        f"index={name!r} is not known", hint=f"Use one of: {', '.join((*_BUCKETS, *others, *installed))}."
    )


def key_generator_option(
    properties: Mapping[str, str], record_key: Sequence[str], partition_by: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The properties that name the key generator, and the partition columns in the form that it needs."""
    kind, class_name = keygen_option(properties)
    names = [word.partition(":")[0].strip() for word in partition_by]
    types = [word.partition(":")[2].strip().upper() for word in partition_by]
    if kind is None:
        kind = _inferred(properties, record_key, types)
    if any(types) and kind != "CUSTOM":
        raise InvalidRequest(
            f"the key generator {kind} does not take types of partition columns ({', '.join(partition_by)})",
            hint="Use org.apache.hudi.keygen.CustomKeyGenerator (CUSTOM), or leave the types out.",
        )
    if kind == "CUSTOM":
        types = [word or "SIMPLE" for word in types]
        unknown = [word for word in types if word not in _FIELD_TYPES]
        if unknown:
            raise InvalidRequest(
                f"{unknown[0]} is no type of a partition column", hint=f"Use one of: {', '.join(_FIELD_TYPES)}."
            )
        names = [f"{name}:{word}" for name, word in zip(names, types, strict=True)]
    _check_partitions(kind, names)
    named = {KEYGEN_TYPE[0]: kind} | ({KEYGEN_CLASS[0]: class_name} if class_name and kind == USER_PROVIDED else {})
    return named, tuple(names)


def keygen_option(properties: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The type and the class of the key generator, if the properties name one; the class implies the type."""
    text, class_name = stated(properties, KEYGEN_TYPE), stated(properties, KEYGEN_CLASS)
    kind = text.upper().removesuffix("_AVRO") if text is not None else None
    if kind is not None and kind not in (*_TYPES, USER_PROVIDED):
        raise InvalidRequest(f"the key generator {text} is not known", hint=f"Use one of: {', '.join(_TYPES)}.")
    if class_name is None:
        if kind == USER_PROVIDED:
            raise InvalidRequest(f"{KEYGEN_TYPE[0]}={kind} needs a class", hint=f"Name it in {KEYGEN_CLASS[0]}.")
        return kind, None
    meant = KEY_GENERATOR_TYPES.get(class_name.rpartition(".")[2].replace("Avro", ""))
    if meant is None and registered_key_generator(class_name) is not None:
        meant = USER_PROVIDED
    if meant is None:
        raise InvalidRequest(
            f"the key generator class {class_name!r} is not known",
            hint=f"Use one of {', '.join(KEY_GENERATOR_TYPES)}, or call lakebed.register_key_generator first.",
        )
    return agreed(KEYGEN_TYPE[0], kind, meant, KEYGEN_CLASS[0]), class_name


def _inferred(properties: Mapping[str, str], record_key: Sequence[str], types: Sequence[str]) -> str:
    """The key generator that Hudi infers from the numbers of fields where none is named."""
    if any(types):
        return "CUSTOM"
    if any(key.startswith(TIME_PREFIXES) for key in properties):
        return "TIMESTAMP"
    if not types:
        return "NON_PARTITION"
    return "SIMPLE" if len(record_key) <= 1 and len(types) == 1 else "COMPLEX"


def _check_partitions(kind: str, names: Sequence[str]) -> None:
    """Refuse key generators that would ignore partition columns, or get more of them than Hudi's take."""
    if kind in ("NON_PARTITION", "GLOBAL_DELETE") and names:
        raise InvalidRequest(
            f"the key generator {kind} makes no partitions, and the table is partitioned by {', '.join(names)}",
            hint="Use SIMPLE for one column, COMPLEX for several; or do not partition the table.",
        )
    if kind in ("SIMPLE", "TIMESTAMP") and len(names) > 1:
        raise InvalidRequest(
            f"the key generator {kind} takes one partition column, not {', '.join(names)}",
            hint="Use COMPLEX; where times are formatted, CUSTOM with types: "
            + ", ".join(f"{name}:SIMPLE" for name in names[:-1])
            + f", {names[-1]}:TIMESTAMP.",
        )


def _shown(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
