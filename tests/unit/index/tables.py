"""A table as an index sees it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from lakebed.config.read_options import ReadOptions
from lakebed.index.choose import open_index
from lakebed.index.locations import Index, IndexContext
from lakebed.index.options import IndexOptions
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReadSplit
from lakebed.model.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakebed.read.reader_context import reader_context_of
from lakebed.runner import LocalRunner
from lakebed.storage.open import open_storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView


def context_of(path: Path) -> IndexContext:
    client = MetaClient.open(open_storage(str(path)))
    reader_context = reader_context_of(client)
    reader = FileGroupReader(client.storage, reader_context, ReadOptions(), reader_context.schema)
    return IndexContext(client, FileSystemView.of(client), reader, LocalRunner(threads=2))


def index_of(context: IndexContext, options: Mapping[str, str] | None = None) -> Index:
    """The index of a write with these options on top of the table's own."""
    chosen = IndexOptions.from_properties({**context.client.config.properties, **(options or {})})
    return open_index(context, chosen, options)


def stored_rows(context: IndexContext) -> pa.Table:
    """Key, partition and file name of every row."""
    names = [RECORD_KEY, PARTITION_PATH, FILE_NAME]
    schema = pa.schema([pa.field(name, pa.string()) for name in names])
    reader = FileGroupReader(context.client.storage, context.reader.reader_context, ReadOptions(), schema)
    slices = [file_slice for path in context.view.partitions() for file_slice in context.view.slices(path)]
    batches = [batch for file_slice in slices for batch in reader.read(ReadSplit(file_slice))]
    return pa.Table.from_batches(batches, schema)


def incoming(*rows: tuple[str, str]) -> pa.Table:
    return pa.table({RECORD_KEY: [key for key, _ in rows], PARTITION_PATH: [path for _, path in rows]})


def file_ids(rows: pa.Table) -> list[str]:
    """The file id in each row's file name; rows of logs have just that."""
    return [text.partition("_")[0] for text in rows.column(FILE_NAME).to_pylist()]
