"""Creating a table: everything is checked first, and then one atomic put of `hoodie.properties` creates it.

The properties are those that real Hudi writes for such a table, and a few that it keeps and ignores: the layout, the
index with its bucket count (a bucket table whose count is lost cannot be written), and for version 10, which is not
final in Hudi yet, a property that marks it as a draft.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakebed.config.merge_settings import COMMIT_TIME_STRATEGY, EVENT_TIME_STRATEGY
from lakebed.config.option_texts import option_texts
from lakebed.config.table_config import TableVersion
from lakebed.errors import InvalidRequest
from lakebed.format.names import PROPERTIES_FILE
from lakebed.format.table_files import render_properties, table_checksum
from lakebed.model.schema import is_meta_field, stored_schema, table_avro, without_meta_fields
from lakebed.model.schema_change import did_you_mean
from lakebed.storage.storage import Storage
from lakebed.txn.mode import mode_properties, shared_lock
from lakebed.write.create.create_options import (
    INDEX_TYPE,
    LAYOUT,
    NUM_BUCKETS,
    ORDERING,
    PARTITION_PATH,
    RECORD_KEY,
    SETTLED,
    VERSION,
    agreed,
    columns_option,
    index_named,
    index_option,
    key_generator_option,
    merge_mode_option,
    stated,
    table_type_option,
)
from lakebed.write.create.dry_run import dry_run
from lakebed.write.rows.prepare import as_reader

DRAFT_PROPERTY = "lakebed.format.draft"
TABLE_TYPES = {"mor": "MERGE_ON_READ", "cow": "COPY_ON_WRITE"}
MOST_BUCKETS = 99_999_999
LAYOUTS = ("lsm_tree", "default")
VERSIONS = {"v2": "10", "v1": "9"}
_MERGE_MODE = "hoodie.record.merge.mode"
_HASH_FIELD = "hoodie.bucket.index.hash.field"
_SET_BY_CREATE = (
    "hoodie.table.create.schema",
    "hoodie.table.checksum",
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
)
_PAYLOADS = {
    "EVENT_TIME_ORDERING": ("org.apache.hudi.common.model.DefaultHoodieRecordPayload", EVENT_TIME_STRATEGY),
    "COMMIT_TIME_ORDERING": ("org.apache.hudi.common.model.OverwriteWithLatestAvroPayload", COMMIT_TIME_STRATEGY),
}


@dataclass(frozen=True, slots=True)
class NewTable:
    """The arguments of `create`."""

    name: str
    schema: pa.Schema
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    table_type: str = "mor"
    layout: str = "lsm_tree"
    log_format: str = "v2"
    index: str | None = None
    num_buckets: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def create_table(storage: Storage, new: NewTable) -> bool:
    """Create the table; False when there is one already."""
    properties = table_properties(new)
    mode, version = (
        merge_mode_option(option_texts(new.properties)),
        TableVersion(int(properties["hoodie.table.version"])),
    )
    properties = {**mode_properties(mode, shared_lock(storage, version)), **properties}
    dry_run(properties, new.schema)
    return storage.put_if_absent(PROPERTIES_FILE, render_properties(properties, ["Properties saved by lakebed"]))


def table_properties(request: NewTable) -> dict[str, str]:
    """The content of `hoodie.properties`; refuses settings that cannot work."""
    new = _with_property_settings(request)
    _check_choices(new)
    keygen, partition_by = key_generator_option(new.properties, new.record_key, new.partition_by)
    _check_columns(new)
    version = stated(new.properties, VERSION) or VERSIONS[new.log_format]
    if (new.log_format == "v2" and version != "10") or (new.log_format == "v1" and version not in ("8", "9")):
        raise InvalidRequest(
            f"table version {version} does not go with log_format={new.log_format!r}",
            hint='log_format="v2" makes version 10, log_format="v1" version 9 (or 8 by hoodie.table.version).',
        )
    default_mode = "EVENT_TIME_ORDERING" if new.ordering else "COMMIT_TIME_ORDERING"
    mode = (stated(new.properties, (_MERGE_MODE,)) or default_mode).upper()
    properties = {
        "hoodie.table.name": new.name,
        "hoodie.table.type": TABLE_TYPES[new.table_type],
        "hoodie.table.version": version,
        "hoodie.table.initial.version": version,
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.partition.fields": ",".join(partition_by),
        **keygen,
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.format": "native",
        "hoodie.table.create.schema": json.dumps(table_avro(new.schema, new.name)),
        "hoodie.table.storage.layout": new.layout,
    }
    if new.record_key:
        properties["hoodie.table.recordkey.fields"] = ",".join(new.record_key)
    if new.ordering:
        properties["hoodie.table.ordering.fields"] = ",".join(new.ordering)
    if version == "8" and mode in _PAYLOADS:
        payload, strategy = _PAYLOADS[mode]
        properties |= {"hoodie.compaction.payload.class": payload, "hoodie.record.merge.strategy.id": strategy}
    if version == "10":
        properties[DRAFT_PROPERTY] = "1"
    properties |= _index_properties(new)
    properties |= {key: value for key, value in new.properties.items() if key not in SETTLED}
    properties[_MERGE_MODE] = mode
    properties["hoodie.table.checksum"] = str(table_checksum(properties))
    return properties


def _with_property_settings(new: NewTable) -> NewTable:
    """The request, with settings from its properties where there is no argument."""
    properties = option_texts(new.properties)
    taken = [key for key in _SET_BY_CREATE if properties.get(key, "").strip()]
    if taken:
        raise InvalidRequest(f"{taken[0]} is set by create itself", hint="Leave it out.")
    index, buckets = index_option(properties)
    return replace(
        new,
        record_key=columns_option("record_key", new.record_key, properties, RECORD_KEY),
        partition_by=columns_option("partition_by", new.partition_by, properties, PARTITION_PATH),
        ordering=columns_option("ordering", new.ordering, properties, ORDERING),
        table_type=table_type_option(properties) or new.table_type,
        layout=str(stated(properties, LAYOUT) or new.layout).lower(),
        index=agreed("index", new.index, index, INDEX_TYPE),
        num_buckets=agreed("num_buckets", new.num_buckets, buckets, NUM_BUCKETS),
        properties=properties,
    )


def schema_of(source: Any) -> pa.Schema:
    """A pyarrow schema, or the schema of data."""
    if isinstance(source, pa.Schema):
        return stored_schema(without_meta_fields(source))
    if hasattr(source, "__arrow_c_schema__"):
        return stored_schema(without_meta_fields(pa.schema(source)))
    return stored_schema(without_meta_fields(as_reader(source).schema))


def default_index(new: NewTable) -> str:
    """The index where none is named: buckets, which hash keys; `simple` without keys, where rows are only added."""
    return new.index or ("bucket" if new.record_key else "simple")


def _index_properties(new: NewTable) -> dict[str, str]:
    kind, engine = index_named(default_index(new))
    found = {"hoodie.index.type": kind.name}
    if engine is not None:
        found["hoodie.index.bucket.engine"] = engine
        found["hoodie.bucket.index.num.buckets"] = str(new.num_buckets or 4)
        found[_HASH_FIELD] = new.properties.get(_HASH_FIELD) or ",".join(new.record_key)
    return found


def _check_choices(new: NewTable) -> None:
    for what, value, known in (
        ("table_type", new.table_type, TABLE_TYPES),
        ("layout", new.layout, LAYOUTS),
        ("log_format", new.log_format, VERSIONS),
    ):
        if value not in known:
            raise InvalidRequest(f"{what}={value!r} is not known", hint=f"Use one of: {', '.join(known)}.")
    if new.index == "record":
        raise InvalidRequest('index="record" needs the metadata table, which is not written yet', hint='Use "bucket".')
    index = default_index(new)
    if index_named(index)[0].needs_record_key and not new.record_key:
        article = "a bucket index" if "bucket" in index else f"the index {index}"
        raise InvalidRequest(f"{article} needs a record key", hint="Give record_key=..., or another index.")
    if default_index(new) == "consistent_bucket" and new.table_type != "mor":
        raise InvalidRequest("consistent hashing is for merge-on-read tables", hint='Use index="bucket".')
    if new.num_buckets is not None and not (isinstance(new.num_buckets, int) and 0 < new.num_buckets <= MOST_BUCKETS):
        raise InvalidRequest(f"num_buckets={new.num_buckets!r} is out of range", hint=f"Use 1 to {MOST_BUCKETS}.")
    if not new.name or "/" in new.name:
        raise InvalidRequest(f"{new.name!r} is no table name", hint='Set properties={"hoodie.table.name": ...}.')


def _check_columns(new: NewTable) -> None:
    names = new.schema.names
    if not names:
        raise InvalidRequest("a table needs at least one column")
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise InvalidRequest(f"columns given twice: {', '.join(sorted(repeated))}")
    reserved = [name for name in names if is_meta_field(name)]
    if reserved:
        raise InvalidRequest(
            f"{', '.join(reserved)} are added by the table itself", hint="Leave them out of the schema."
        )
    for what, columns in (
        ("record_key", new.record_key),
        ("partition_by", [word.partition(":")[0].strip() for word in new.partition_by]),
        ("ordering", new.ordering),
    ):
        _check_known(what, columns, new.schema)
    inner = [name for name in new.ordering if name not in names]
    if inner:
        raise InvalidRequest(
            f"ordering={inner[0]!r} is a field inside a column", hint="Order by a column of its own; copy the field."
        )


def _check_known(what: str, columns: Sequence[str], schema: pa.Schema) -> None:
    for column in columns:
        top = column.partition(".")[0]
        index = schema.get_field_index(top)
        if index < 0:
            raise InvalidRequest(f"{what}={column!r} is no column of the schema", hint=did_you_mean(top, schema.names))
        if top == column and pa.types.is_nested(schema.field(index).type):
            raise InvalidRequest(f"{what}={column!r} is a nested column", hint="Use a plain column, or a field of it.")
