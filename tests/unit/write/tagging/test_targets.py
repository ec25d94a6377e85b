"""Which slice the rows of a file group are written on top of, and how groups are numbered until then."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import ConflictError
from lakebed.index.locations import FILE_ID, INSTANT, OLD_FILE_ID, OLD_PARTITION, Index, Places
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.read.reader_context import keyed_reader_context
from lakebed.storage.open import open_storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.job import tagging_of
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GROUP_COLUMN, GroupBuffers
from lakebed.write.tagging.group_numbers import GroupNumbers, incoming_by_group
from lakebed.write.tagging.targets import (
    TargetRules,
    all_slices,
    group_targets,
    groups_of_partitions,
    refuse_replaced_buckets,
)
from lakebed.write.task.write_task import Target
from tests.unit.write.tables import make, row, table

GROUP = FileGroupId("p=a", "f1")
SLICE = FileSlice(GROUP, "20260101000000000", None, ())


class LookUp(Index):
    """As good as any index that looks keys up: targets ask only what it is."""

    def places(self, rows: pa.Table) -> Places:
        raise AssertionError


def index(*, is_hashed: bool) -> Index:
    found = LookUp()
    found.is_hashed = is_hashed
    return found


def rules(operation: Operation = Operation.UPSERT, *, is_mor: bool = True, **more: Any) -> TargetRules:
    return TargetRules(operation, more.pop("index", index(is_hashed=False)), is_mor, **more)


def test_rows_go_on_top_of_the_latest_slice() -> None:
    appended = rules().target(GROUP, SLICE, has_files=True)
    assert appended is not None
    assert (appended.kind, appended.slice, appended.file_group) == (Target.APPEND, SLICE, GROUP)
    for other in (rules(is_mor=False), rules(rewritten={GROUP})):
        merged = other.target(GROUP, SLICE, has_files=True)
        assert merged is not None
        assert (merged.kind, merged.slice) == (Target.MERGE, SLICE)


@pytest.mark.parametrize("is_hashed", [False, True])
def test_a_group_without_files_is_made(is_hashed: bool) -> None:
    made = rules(index=index(is_hashed=is_hashed)).target(GROUP, None, has_files=True)
    assert made is not None
    assert (made.kind, made.slice, made.may_roll) == (Target.CREATE, None, not is_hashed)
    assert rules(Operation.DELETE).target(GROUP, None, has_files=True) is None, "there is nothing to delete"


def test_a_replaced_group_gets_another_file_id_where_its_partition_has_files() -> None:
    overwrite = rules(Operation.INSERT_OVERWRITE, is_mor=False)
    first, later = (overwrite.target(GROUP, None, has_files=has_files) for has_files in (False, True))
    assert first is not None and later is not None
    assert first.file_group == GROUP
    assert later.kind is Target.CREATE and later.slice is None
    assert later.file_group.partition_path == GROUP.partition_path
    assert later.file_group.file_id != GROUP.file_id


def test_targets_of_a_table() -> None:
    t = make(index="simple")
    t.upsert(table(row("a", p="a"), row("b", p="b")))
    client = MetaClient.open(open_storage(t.url))
    view = FileSystemView.of(client)
    known = [file_slice.file_group for file_slice in all_slices(view)]
    new = FileGroupId("new", "f9")
    found = group_targets([*known, new], view, rules())
    assert {group: target.kind for group, target in found.items()} == {
        **dict.fromkeys(known, Target.APPEND),
        new: Target.CREATE,
    }
    assert new not in group_targets([new], view, rules(Operation.DELETE))
    by_path = {group.partition_path: (group.file_id,) for group in known}
    assert groups_of_partitions(view, None, {"new", *by_path}) == by_path
    one = known[0].partition_path
    assert groups_of_partitions(view, (one, "gone"), set()) == {one: by_path[one]}


@pytest.mark.parametrize("kind", ["bucket", "consistent_bucket"])
def test_a_bucket_that_was_replaced_meanwhile_stops_the_write(kind: str) -> None:
    t = make(index=kind, partition_by=None)
    t.upsert(table(row("a"), row("b")))
    writer = t._writer(None, None)
    tagging = _tagging(writer)
    client = MetaClient.open(open_storage(t.url))
    groups = [file_slice.file_group for file_slice in all_slices(FileSystemView.of(client))]
    refuse_replaced_buckets(groups, tagging._index(client, FileSystemView.of(client)))
    t.overwrite(table(row("c"), row("d"), row("e"), row("f")))
    now = MetaClient.open(open_storage(t.url))
    with pytest.raises(ConflictError, match="was replaced by another writer"):
        refuse_replaced_buckets(groups, tagging._index(now, FileSystemView.of(now)))


def _tagging(writer: Any) -> Any:
    reader_context = keyed_reader_context(writer.client)
    plan = writer.plan(reader_context, table().schema)
    return tagging_of(writer.client, writer.request(Operation.UPSERT, reader_context, plan), writer.context.runner)


# ---------------------------------------------------------------------- numbers
def test_groups_are_numbered_as_they_turn_up() -> None:
    numbers = GroupNumbers()
    other = FileGroupId("p=a", "f2")
    assert [numbers.number(group) for group in (GROUP, other, GROUP)] == [0, 1, 0]
    assert [numbers.buffer_number(other, is_delete=is_delete) for is_delete in (False, True)] == [2, 3]
    assert list(numbers) == [GROUP, other]


def test_a_row_that_moved_comes_with_a_delete_of_its_old_version() -> None:
    reader_context = keyed_reader_context(MetaClient.open(open_storage(make().url)))
    located = table(row("a", 5), row("b", 6))
    located = located.add_column(0, RECORD_KEY, pa.array(["a", "b"])).add_column(
        1, PARTITION_PATH, pa.array(["x", "y"])
    )
    places = {
        FILE_ID: ["f1", "f2"],
        INSTANT: [None, None],
        OLD_PARTITION: [None, "z"],
        OLD_FILE_ID: [None, "f0"],
    }
    for name, values in places.items():
        located = located.append_column(name, pa.array(values, pa.string()))
    numbers = GroupNumbers()
    rows, deletes = (
        pa.Table.from_batches([batch]) for batch in numbers.numbered_rows(located, reader_context, is_delete=False)
    )
    assert list(numbers) == [FileGroupId("x", "f1"), FileGroupId("y", "f2"), FileGroupId("z", "f0")]
    assert rows.column(GROUP_COLUMN).to_pylist() == [0, 2]
    assert not set(places) & set(rows.column_names)
    assert deletes.to_pylist() == [{RECORD_KEY: "b", "ts": None, GROUP_COLUMN: 5}]
    with GroupBuffers(1 << 20) as buffers:
        buffers.add([*rows.to_batches(), *deletes.to_batches()])
        found = {number: (incoming, count) for number, incoming, count in incoming_by_group(buffers.buffers())}
    assert {number: count for number, (_, count) in found.items()} == {0: 1, 1: 1, 2: 1}
    assert found[2][0].rows is None and found[2][0].deletes is not None
