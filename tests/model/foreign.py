"""Base files as foreign writers leave them: keys that repeat, rows in no order, no marks of ours."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.storage.open import open_storage
from lakebed.storage.storage import Storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from tests.model.versions import Row

_ROW_GROUP = 7


def repeat_rows(
    url: str, instant: str, chance: random.Random, another: Callable[[Row], Row]
) -> Iterator[tuple[str, Row]]:
    """Rewrite the base files of a commit so that some keys are there again; all their rows with the partition."""
    storage = open_storage(url)
    view = FileSystemView.of(MetaClient.open(storage))
    for partition in view.partitions():
        for base in (found.base_file for found in view.slices(partition)):
            if base is None or base.requested_time != instant:
                continue
            table = pq.read_table(pa.BufferReader(storage.read(base.path)))
            rows = table.to_pylist()
            rows += [another(row) for row in rows if chance.random() < 0.4]
            chance.shuffle(rows)
            _replace(storage, base.path, pa.Table.from_pylist(rows, schema=table.schema))
            yield from ((partition, row) for row in rows)


def _replace(storage: Storage, path: str, table: pa.Table) -> None:
    kept = {name: value for name, value in (table.schema.metadata or {}).items() if not name.startswith(b"lakebed")}
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(kept), sink, row_group_size=_ROW_GROUP, compression="none", use_dictionary=False
    )
    storage.delete([path])
    storage.put(path, sink.getvalue().to_pybytes())
