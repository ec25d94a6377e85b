"""Merged batches on their way into a log: some keep a text behind a dictionary, some do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.merge.record_merger import MergeRule, Op
from lakebed.merge.runs import OP_COLUMN
from lakebed.model.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakebed.write.task.meta_columns import SequenceNumbers, log_rows

RULE = MergeRule(ordering=("ts",))


def merged(*rows: tuple[str, int | None, str | None, Op], coded: bool) -> pa.RecordBatch:
    keys, times, texts, ops = zip(*rows, strict=True)
    text = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys),
            pa.array(times, pa.int64()),
            text.dictionary_encode() if coded else text,
            pa.array(ops, pa.int8()),
        ],
        names=[RECORD_KEY, "ts", "w", OP_COLUMN],
    )


@pytest.mark.parametrize("coded", [(True, False, True), (False, True, False)])
def test_batches_with_and_without_dictionaries_are_taken_apart(coded: tuple[bool, ...]) -> None:
    batches = [
        merged(("a", 1, "x", Op.ROW), ("b", None, None, Op.DELETE), coded=coded[0]),
        merged(
            ("b", 1, "y", Op.ROW), ("c", 4, None, Op.DELETE_WITH_ORDERING), ("d", None, None, Op.DELETE), coded=coded[1]
        ),
        merged(("e", None, None, Op.DELETE), coded=coded[2]),
        merged(("e", None, None, Op.DELETE), coded=coded[0]),
    ]
    parts = list(log_rows(iter(batches), RULE, [RECORD_KEY, "w"]))
    rows = [row for part in parts for row in part.rows.to_pylist()]
    assert rows == [{RECORD_KEY: "a", "w": "x"}, {RECORD_KEY: "b", "w": "y"}]
    assert [row for part in parts for row in part.earlier.to_pylist()] == [
        {RECORD_KEY: "b", "ts": None},
        {RECORD_KEY: "e", "ts": None},
    ]
    assert [row for part in parts for row in part.deletes.to_pylist()] == [
        {RECORD_KEY: "c", "ts": 4},
        {RECORD_KEY: "d", "ts": None},
        {RECORD_KEY: "e", "ts": None},
    ]


def test_sequence_numbers_of_rows_behind_a_dictionary() -> None:
    times = pa.array(["001", "002", "002"])
    for numbers in (pa.array(["old", None, None]), pa.array(["old", None, None]).dictionary_encode()):
        batch = pa.RecordBatch.from_arrays([times.dictionary_encode(), numbers], names=[COMMIT_TIME, COMMIT_SEQNO])
        with_meta_columns = SequenceNumbers("002", 7).stamp(batch)
        assert with_meta_columns.column(COMMIT_SEQNO).to_pylist() == ["old", "002_7_1", "002_7_2"]


@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_an_upsert_of_many_deletes_whose_text_repeats_in_parts(layout: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("w", pa.string()), ("_hoodie_is_deleted", pa.bool_())])
    table = lakebed.create(tmp_path, schema, record_key="id", num_buckets=1, layout=layout)
    count, size = 200_000, 10_000
    gone = np.random.default_rng(1).random(count) < 0.9

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, size):
            numbers = range(start, start + size)
            ids = pa.array([f"k{number:08d}" for number in numbers])
            texts = [f"w{n % 5}" if start < count // 2 else f"{n}-{'x' * 30}" for n in numbers]
            yield pa.RecordBatch.from_arrays(
                [ids, pa.array(texts), pa.array(gone[start : start + size])], schema=schema
            )

    table.bulk_insert(next(batches()))
    table.upsert(pa.RecordBatchReader.from_batches(schema, batches()), memory="32MB")
    assert table.scan().count() == int((~gone).sum())
