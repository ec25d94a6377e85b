"""From a table's settings and timeline to a reader context: schema, merge rule, layout.

The schema is that of the newest completed write by the time of the query that carries one; in a table with
schema-on-read it is the version of that time, and the columns of files are matched with it by id instead of by name.
Every column is nullable to a reader, whatever the table declares: a file from before a column was added has
only nulls for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from lakebed.config.read_options import TableConfig
from lakebed.errors import CorruptTable
from lakebed.format.names import PROPERTIES_FILE
from lakebed.merge.reader_context import ReaderContext
from lakebed.merge.record_merger import MergeRule
from lakebed.model.internal_schema import SchemaOnRead
from lakebed.model.record_key import KeyGenerator, key_generator_of
from lakebed.model.schema import (
    OPERATION,
    RECORD_KEY,
    avro_to_arrow,
    column_defaults,
    with_meta_fields,
    without_meta_fields,
)
from lakebed.read.schema_versions import schema_on_read, version_of_plan
from lakebed.timeline.meta_client import MetaClient

PLAIN_KEYS = frozenset({"SIMPLE", "NON_PARTITION", "TIMESTAMP"})
ALLOW_OPERATION_FIELD = "hoodie.allow.operation.metadata.field"


def reader_context_of(client: MetaClient, at: str | None = None) -> ReaderContext:
    """What readers need to know of the table as it was at completion time `at`, or is now."""
    on_read, text = schema_on_read(client, at), client.schema_json(at)
    if on_read is not None and (at is None or on_read.wanted.version):
        stored = on_read.wanted.arrow
    else:
        stored = avro_to_arrow(text) if text is not None else pa.schema([])
    return _reader_context(client.config, stored, text, on_read)


def _reader_context(
    config: TableConfig, stored: pa.Schema, text: str | None, on_read: SchemaOnRead | None
) -> ReaderContext:
    own = without_meta_fields(stored)
    has_operation = OPERATION in stored.names or config.properties.get(ALLOW_OPERATION_FIELD) == "true"
    schema = with_meta_fields(own, operation=has_operation) if config.populate_meta_fields else own
    return ReaderContext(
        schema=pa.schema([column.with_nullable(True) for column in schema]),
        rule=merge_rule(config, own, column_defaults(text) if text else {}),
        layout=config.layout,
        key_column=key_column(config, own),
        on_read=on_read,
        virtual_key=_virtual_key(config, own),
    )


def keyed_reader_context(client: MetaClient) -> ReaderContext:
    """What writers need to know of the table: as `reader_context_of`, with meta columns in any case."""
    return with_made_keys(reader_context_of(client), client.config)


def reader_context_of_plan(client: MetaClient, requested: str, inputs: Iterable[str]) -> ReaderContext:
    """What a table service planned at a requested time needs to know; `inputs` are the requested times of its files.

    As `keyed_reader_context`. Where the table keeps versions of its schema it is that of the plan, not of the time of
    the run.
    """
    now = reader_context_of(client)
    if now.on_read is not None:
        version = version_of_plan(now.on_read, requested, inputs)
        if version.version != now.schema_id:
            on_read = replace(now.on_read, wanted=version)
            now = _reader_context(client.config, version.arrow, client.schema_json(requested), on_read)
    return with_made_keys(now, client.config)


def with_made_keys(reader_context: ReaderContext, config: TableConfig) -> ReaderContext:
    """The reader context with meta columns.

    Where the table does not fill them, readers make the key of a row from its columns and its partition from the file's
    folder; the other meta columns are null.
    """
    if config.populate_meta_fields or not config.key_fields:
        return reader_context
    schema = with_meta_fields(reader_context.schema)
    return replace(
        reader_context,
        schema=schema,
        rule=replace(reader_context.rule, key=RECORD_KEY),
        virtual_key=key_generator_of(config),
    )


def _virtual_key(config: TableConfig, schema: pa.Schema) -> KeyGenerator | None:
    if config.populate_meta_fields or not config.key_fields or key_column(config, schema) is not None:
        return None
    return key_generator_of(config)


def key_column(config: TableConfig, schema: pa.Schema) -> str | None:
    """The one text column whose value is the record key as it stands; composite keys have none."""
    if len(config.key_fields) != 1 or config.keygen_type not in PLAIN_KEYS:
        return None
    name = config.key_fields[0]
    index = schema.get_field_index(name)
    return name if index >= 0 and pa.types.is_string(schema.field(index).type) else None


def merge_rule(config: TableConfig, schema: pa.Schema, defaults: dict[str, object]) -> MergeRule:
    """The table's rule for rows of one key. Without meta fields the key is taken from the user's column."""
    unknown = [name for name in config.ordering_fields if name not in schema.names]
    if unknown and len(schema):
        raise CorruptTable(
            f"the table is ordered by {', '.join(unknown)}, which its schema does not have",
            file=PROPERTIES_FILE,
            hint="Correct hoodie.table.ordering.fields, or restore the file.",
        )
    key = RECORD_KEY if config.populate_meta_fields else key_column(config, schema)
    return MergeRule(
        key=key or RECORD_KEY,
        mode=config.merge_mode,
        ordering=tuple(config.ordering_fields),
        delete_field=config.delete_field,
        delete_marker=config.delete_marker,
        partial_update=config.partial_update_mode,
        unavailable_value=config.unavailable_value,
        merger=config.merge_strategy_id,
        column_defaults=defaults,
    )
