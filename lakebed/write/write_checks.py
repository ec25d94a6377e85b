"""Checks of a table before anything is written to it, and the schema information that a write must record again.

A table may have settings that our reader supports and our writer does not: then every write is refused, because rows
written without the feature (change capture, for example) would give wrong results to later readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from lakebed.config.option import WORDS, options_of
from lakebed.config.read_options import WRITE_KEYS, TableConfig
from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest
from lakebed.index.bucket import bucket_of_file_id
from lakebed.index.options import IndexOptions
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.internal_schema import LATEST_SCHEMA
from lakebed.model.schema import avro_to_arrow, without_meta_fields
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.options import TxnOptions
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.virtual_keys import POPULATE_META_FIELDS, refuse_unmade_keys

INDEX_TYPE = "hoodie.index.type"
_OTHER_KEYS = (
    POPULATE_META_FIELDS,
    *WRITE_KEYS,
    "hoodie.write.complex.keygen.new.encoding",
    "hoodie.spark.sql.merge.into.partial.updates",
    "hoodie.upsert.shuffle.parallelism",
    "hoodie.insert.shuffle.parallelism",
    "hoodie.bulkinsert.shuffle.parallelism",
    "hoodie.delete.shuffle.parallelism",
    "lakebed.spark.",
)


def write_keys() -> frozenset[str]:
    """The option keys that a write reads; one that ends in a dot stands for all keys below it."""
    declared = [one for group in (WriteOptions, IndexOptions, TxnOptions) for one in options_of(group).values()]
    return frozenset({key for one in declared for key in one.keys} | set(_OTHER_KEYS))


def refuse_unwritable(config: TableConfig) -> None:
    """`InvalidRequest` for tables that lakebed can only read."""
    reasons = {
        "it captures changes in CDC logs": config.cdc_enabled,
        "its files lack the partition columns": config.drop_partition_columns,
        f"its base files are {config.base_file_format}": config.base_file_format.upper() != "PARQUET",
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidRequest(f"the table cannot be written to: {reason}", hint="Write to it with Hudi.")
    refuse_unmade_keys(config)


def refuse_other_fields(config: TableConfig, properties: Mapping[str, str]) -> None:
    """A table keeps its key, partition and ordering columns; options that name others are a mistake."""
    own = {"recordkey": config.key_fields, "partitionpath": config.partition_fields}
    for word, fields in {**own, "precombine": config.ordering_fields}.items():
        key = f"hoodie.datasource.write.{word}.field"
        named = tuple(name.partition(":")[0] for name in WORDS.parse(properties.get(key, "")))
        if named and named != fields:
            raise InvalidRequest(
                f"the table has {','.join(fields) or 'none'} where {key}={properties[key]}",
                hint=f"Leave {key} out: the table knows it.",
            )


def refuse_unnamed_buckets(client: MetaClient, properties: Mapping[str, str]) -> None:
    """A bucket table whose properties do not name its index must not get file groups that belong to no bucket."""
    if INDEX_TYPE in client.config.properties or INDEX_TYPE in properties:
        return
    view = FileSystemView.of(client)
    for path in _partitions(view):
        ids = [file_slice.file_group.file_id for file_slice in view.slices(path)]
        if ids and all(file_id.startswith("0000") and bucket_of_file_id(file_id) is not None for file_id in ids):
            raise InvalidRequest(
                f"the file groups are buckets ({ids[0]}), and the table does not state how many there are",
                hint="Open it with num_buckets=, as it was written with; or name its index in hoodie.index.type.",
            )
        if ids:
            return


def _partitions(view: FileSystemView) -> Iterator[str]:
    """The partitions of a table, those named in commits first: a caller that needs only one lists no folders."""
    in_commits = sorted(view.commits.written())
    yield from in_commits
    yield from (path for path in view.partitions() if path not in in_commits)


def declared_schema(client: MetaClient, reader_context: ReaderContext) -> pa.Schema:
    """The table's own columns, nullable as the table declares them; readers treat every column as nullable."""
    own = without_meta_fields(reader_context.schema)
    text = client.schema_json()
    stated = avro_to_arrow(text) if text else own
    required = {column.name: column for column in stated if not column.nullable}
    return pa.schema(
        [
            column.with_nullable(False)
            if column.name in required and required[column.name].type == column.type
            else column
            for column in own
        ],
        metadata=own.metadata,
    )


def refuse_other_version(table: pa.Schema, after: pa.Schema) -> None:
    """Refuse a write that would change the schema of a table whose columns have ids: only ALTER TABLE assigns ids."""
    changed = [item.name for item in after if item.name in table.names and table.field(item.name).type != item.type]
    if changed or after.names != table.names:
        what = f"other types ({', '.join(changed)})" if changed else "new columns"
        raise InvalidRequest(
            f"the data has {what}, and the table keeps a history of its schemas by column ids",
            hint="Change the schema with Hudi first (ALTER TABLE), then write; or cast the data.",
        )


def version_report(reader_context: ReaderContext) -> dict[str, str]:
    """What a commit must record where columns have ids: the version of the schema that its files were written with."""
    return {} if reader_context.on_read is None else {LATEST_SCHEMA: reader_context.on_read.wanted.json}
