"""Logs of the default layout are sorted by key and say so, whatever RFC-81's switch is set to."""

from __future__ import annotations

import warnings

import pytest

from lakebed.config.read_options import ReadOptions
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.model.schema import RECORD_KEY
from lakebed.read.reader_context import keyed_reader_context
from lakebed.storage.open import open_storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from tests.unit.write.tables import make, row, table

SWITCH = "compaction_with_merge_sort_enable"


@pytest.mark.parametrize("options", [{}, {SWITCH: "true"}, {"hoodie.compaction.with.merge.sort.enable": "false"}])
@pytest.mark.parametrize("log_format", ["v1", "v2"])
def test_rows_of_a_log_are_sorted_and_marked(log_format: str, options: dict[str, str]) -> None:
    t = make(layout="default", log_format=log_format, num_buckets=1)
    t.insert(table(row("m")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the switch is known
        t.upsert(table(*(row(key, 2) for key in "zebra")), options=options)
    client = MetaClient.open(open_storage(t.url))
    reader_context = keyed_reader_context(client)
    reader = FileGroupReader(client.storage, reader_context, ReadOptions(), reader_context.schema)
    [file_slice] = FileSystemView.of(client).slices("p=a")
    assert file_slice.log_files
    newest = max(reader.runs(file_slice, reader_context.schema), key=lambda run: run.age)
    keys = [key for batch in newest.open(100) for key in batch.column(RECORD_KEY).to_pylist()]
    assert newest.is_sorted
    assert keys == sorted(set("zebra"))
