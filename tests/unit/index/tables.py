"""A table as an index sees it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakebed.config.options import ReadOptions
from lakebed.index.locations import IndexContext
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.table_shape import ReadSplit
from lakebed.model.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakebed.read.shape import table_shape
from lakebed.runner import LocalRunner
from lakebed.storage.open import open_storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView


def context_of(path: Path) -> IndexContext:
    client = MetaClient.open(open_storage(str(path)))
    shape = table_shape(client)
    reader = FileGroupReader(client.storage, shape, ReadOptions(), shape.schema)
    return IndexContext(client, FileSystemView.of(client), reader, LocalRunner(threads=2))


def stored_rows(context: IndexContext) -> pa.Table:
    """Key, partition and file name of every row."""
    names = [RECORD_KEY, PARTITION_PATH, FILE_NAME]
    schema = pa.schema([pa.field(name, pa.string()) for name in names])
    reader = FileGroupReader(context.client.storage, context.reader.shape, ReadOptions(), schema)
    slices = [piece for path in context.view.partitions() for piece in context.view.slices(path)]
    batches = [batch for piece in slices for batch in reader.read(ReadSplit(piece))]
    return pa.Table.from_batches(batches, schema)


def incoming(*rows: tuple[str, str]) -> pa.Table:
    return pa.table({RECORD_KEY: [key for key, _ in rows], PARTITION_PATH: [path for _, path in rows]})


def file_ids(rows: pa.Table) -> list[str]:
    """The file id in each row's file name; rows of logs have just that."""
    return [text.partition("_")[0] for text in rows.column(FILE_NAME).to_pylist()]
