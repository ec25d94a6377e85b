"""A dry run of the first write to a new table: without rows, on a copy in memory, up to the start of the transaction.

Table settings that a write would refuse are refused before the table is created. Otherwise a table that cannot be
written to would be noticed only by the first write.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakebed.config.merge_settings import MergeMode
from lakebed.config.table_config import TableConfig
from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.names import PROPERTIES_FILE
from lakebed.format.table_files import render_properties
from lakebed.model.record_key import partition_path_array, record_key_array
from lakebed.read.reader_context import keyed_reader_context
from lakebed.runner import SerialRunner
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.job import tagging_of
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GroupBuffers
from lakebed.write.table_writer import TableWriter
from lakebed.write.virtual_keys import refuse_unmade_keys
from lakebed.write.write_checks import refuse_unwritable
from lakebed.write.writer_context import writer_context

_SOME_MEMORY = 1 << 20


def dry_run(properties: Mapping[str, str], schema: pa.Schema) -> None:
    """`InvalidRequest` for a table with these properties that rows of the schema could not be written to."""
    try:
        config = TableConfig.from_properties(properties)
        refuse_unmade_keys(config, schema)
        _refuse_unwritable(config)
        if config.merge_mode is MergeMode.CUSTOM and not config.merge_strategy_id:
            raise InvalidRequest(
                "hoodie.record.merge.mode=CUSTOM needs the name of a merger",
                hint="Register one with lakebed.register_merger, and name it in hoodie.record.merge.strategy.id.",
            )
        _prepare(properties, schema)
    except (CorruptTable, UnsupportedFormat) as problem:  # nothing is corrupt yet: there is no table
        raise InvalidRequest(problem.what, hint="Correct the properties of the new table.") from None


def _refuse_unwritable(config: TableConfig) -> None:
    try:
        refuse_unwritable(config)
    except InvalidRequest as problem:
        raise InvalidRequest(
            problem.what.replace("the table cannot", "such a table cannot"),
            hint="Leave out the property that sets this.",
        ) from None


def _prepare(properties: Mapping[str, str], schema: pa.Schema) -> None:
    storage = MemoryStorage()
    storage.put_if_absent(PROPERTIES_FILE, render_properties(dict(properties), []))
    client = MetaClient.open(storage)
    context = writer_context(client, properties, {}, memory=_SOME_MEMORY, default_memory=_SOME_MEMORY)
    writer = TableWriter(context)
    reader_context = keyed_reader_context(client)
    plan = writer.plan(reader_context, schema)
    nothing = pa.RecordBatch.from_pylist([], schema)
    if not plan.generator.is_keyless and plan.generator.function is None:  # a user's function may refuse no rows
        record_key_array(plan.generator, nothing)
    partition_path_array(plan.generator, nothing)
    with GroupBuffers(_SOME_MEMORY) as group_buffers:
        request = writer.request(Operation.INSERT, reader_context, plan)
        tagging_of(client, request, SerialRunner()).buffer_rows(group_buffers, (), ())
