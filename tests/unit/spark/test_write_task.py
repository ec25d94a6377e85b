"""The body of a Spark write task, run without Spark."""

from __future__ import annotations

import pickle

import pytest

import lakebed
from lakebed.config.write_options import Duplicates, WriteOptions
from lakebed.read.reader_context import keyed_reader_context
from lakebed.runner import SerialRunner
from lakebed.storage.open import open_storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.job import begin, commit, write_context
from lakebed.write.operation import Operation
from lakebed.write.table_writer import TableWriter
from lakebed.write.task.parallelism import Parallelism
from lakebed.write.writer_context import writer_context
from tests.unit.write.tables import SCHEMA, make, row, table, values

write_job = pytest.importorskip("lakebed.spark.write_job", reason="needs pyspark")


def insert_in_task(t: lakebed.Table, policy: Duplicates) -> None:
    """What the driver and one task do with two rows, of which one is there."""
    storage = open_storage(t.url)
    options = WriteOptions(duplicate_policy=policy).to_properties()
    writer = TableWriter(writer_context(MetaClient.open(storage), {}, options, default_memory=1 << 30))
    reader_context = keyed_reader_context(writer.client)
    plan = writer.plan(reader_context, SCHEMA)
    request = writer.request(Operation.INSERT, reader_context, plan)
    with begin(writer.client, writer.context.txn_context, request) as txn:
        context = write_context(txn, request, Parallelism(SerialRunner()))
        task = write_job.WriteTask(context, request, plan, txn.snapshot)
        pickle.dumps(task)
        rows = table(row("a", 9, v=9), row("b", 9, v=9))
        batches = iter(rows.rename_columns([f"c{n}" for n in range(len(SCHEMA))]).to_batches())
        commit(txn, request, task.run(batches, 0, "0-0-0"), {})


@pytest.mark.parametrize(
    ("policy", "found"), [(Duplicates.NONE, [("a", 9), ("b", 9)]), (Duplicates.DROP, [("a", 1), ("b", 9)])]
)
def test_known_keys_in_a_task(policy: Duplicates, found: list[tuple[str, int]]) -> None:
    t = make()
    t.insert(table(row("a", v=1)))
    insert_in_task(t, policy)
    assert values(t.refresh(), "id", "v") == found


def test_known_keys_stop_the_job() -> None:
    t = make()
    t.insert(table(row("a", v=1)))
    with pytest.raises(lakebed.InvalidRequest, match="already: 'a'"):
        insert_in_task(t, Duplicates.FAIL)
    assert values(t.refresh(), "id", "v") == [("a", 1)]
