"""The simple, bloom and record indexes find every stored key where it is, and know what is new or moved."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.errors import InvalidRequest
from lakebed.index.bloom import bloom_index
from lakebed.index.key_scan import KeyReader, SliceLookup
from lakebed.index.locations import FILE_ID, INSTANT, OLD_FILE_ID, OLD_PARTITION
from lakebed.index.simple import simple_index
from lakebed.merge.key_index import KeyIndex
from lakebed.model.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY
from tests.unit.index.tables import context_of, file_ids, incoming, index_of, stored_rows

Golden = Callable[[str], Path]
TABLES = [
    "complex_keys_mor_v9",
    "cow_global_bloom_v9",
    "cow_oddkeys_rli_v9",
    "mor_deletes_v9",
    "mor_delpart_reinsert_v9",
    "mor_global_simple_v9",
    "mor_parquet_bucket_deletes_v9",
    "mor_rolledback_logs_v9",
    "nonpart_cow_v9",
    "orc_mor_v9",
]
KINDS = ["SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TABLES)
def test_every_stored_key_is_found_where_it_is(name: str, kind: str, golden: Golden) -> None:
    context = context_of(golden(name))
    rows = stored_rows(context)
    located = index_of(context, {"hoodie.index.type": kind}).locate(rows)
    assert located.column(FILE_ID).to_pylist() == file_ids(rows)
    assert located.column(INSTANT).null_count == 0
    assert located.column(OLD_FILE_ID).null_count == rows.num_rows


@pytest.mark.parametrize("kind", KINDS)
def test_new_keys_have_no_place_and_doubles_share_one(kind: str, golden: Golden) -> None:
    context = context_of(golden("cow_simple_v9"))
    stored = stored_rows(context)
    key, path = stored.column(RECORD_KEY)[3].as_py(), stored.column(PARTITION_PATH)[3].as_py()
    rows = incoming(("new", path), (key, path), ("new", "nowhere"), (key, path))
    located = index_of(context, {"hoodie.index.type": kind}).locate(rows)
    place = file_ids(stored)[3]
    assert located.column(FILE_ID).to_pylist() == [None, place, None, place]
    assert located.slice(0, 0).schema.equals(index_of(context).locate(rows.slice(0, 0)).schema)


def test_a_key_is_known_by_its_partition_unless_the_index_is_global(golden: Golden) -> None:
    context = context_of(golden("cow_simple_v9"))
    stored = stored_rows(context)
    key, path = stored.column(RECORD_KEY)[0].as_py(), stored.column(PARTITION_PATH)[0].as_py()
    rows = incoming((key, "elsewhere"))
    assert simple_index(context).locate(rows).column(FILE_ID).to_pylist() == [None]
    moved = simple_index(context, is_global=True).locate(rows)
    assert moved.select([FILE_ID, OLD_PARTITION, OLD_FILE_ID, PARTITION_PATH]).to_pylist() == [
        {FILE_ID: None, OLD_PARTITION: path, OLD_FILE_ID: file_ids(stored)[0], PARTITION_PATH: "elsewhere"}
    ]
    stays = bloom_index(context, is_global=True, moves=False).locate(rows)
    assert stays.select([FILE_ID, OLD_PARTITION, OLD_FILE_ID, PARTITION_PATH]).to_pylist() == [
        {FILE_ID: file_ids(stored)[0], OLD_PARTITION: None, OLD_FILE_ID: None, PARTITION_PATH: path}
    ]


def test_a_deleted_key_is_remembered_by_its_group_and_new_elsewhere(golden: Golden) -> None:
    context = context_of(golden("mor_deletes_v9"))
    alive = set(stored_rows(context).column(RECORD_KEY).to_pylist())
    slices = [file_slice for path in context.view.partitions() for file_slice in context.view.slices(path)]
    reader = KeyReader(context.reader)
    known = {
        (key, file_slice.file_group)
        for file_slice in slices
        if file_slice.log_files
        for batch in reader.keys(file_slice)
        for key in batch.to_pylist()
    }
    dead = sorted((key, group) for key, group in known if key not in alive)
    assert dead
    same = simple_index(context).locate(incoming(*((key, group.partition_path) for key, group in dead)))
    assert same.column(FILE_ID).to_pylist() == [group.file_id for _, group in dead]
    other = simple_index(context, is_global=True).locate(incoming(*((key, "elsewhere") for key, _ in dead)))
    assert other.column(OLD_FILE_ID).null_count == len(dead)
    assert other.column(FILE_ID).null_count == len(dead)


def test_keys_that_moved_are_found_where_they_are_now(golden: Golden) -> None:
    """The old partition still has the key in its base file, and a delete in a log."""
    context = context_of(golden("mor_global_simple_v9"))
    slices = [file_slice for path in context.view.partitions() for file_slice in context.view.slices(path)]
    reader = KeyReader(context.reader)
    holders: dict[str, set[str]] = {}
    for file_slice in slices:
        for batch in reader.keys(file_slice):
            for key in batch.to_pylist():
                holders.setdefault(key, set()).add(file_slice.file_group.partition_path)
    assert any(len(paths) > 1 for paths in holders.values())
    stored = stored_rows(context)
    rows = stored.set_column(1, PARTITION_PATH, pa.array(["elsewhere"] * stored.num_rows))
    located = simple_index(context, is_global=True).locate(rows)
    assert located.column(OLD_PARTITION).to_pylist() == stored.column(PARTITION_PATH).to_pylist()
    assert located.column(OLD_FILE_ID).to_pylist() == file_ids(stored)


def test_footers_keep_base_files_from_being_read(golden: Golden) -> None:
    context = context_of(golden("cow_simple_v9"))
    file_slice = next(file_slice for path in context.view.partitions() for file_slice in context.view.slices(path))
    stored = stored_rows(context).filter(pc.starts_with(pc.field(FILE_NAME), file_slice.file_group.file_id))
    absent = pa.array([f"{key}x" for key in stored.column(RECORD_KEY).to_pylist()])  # inside the key range
    both = pa.concat_arrays([absent, stored.column(RECORD_KEY).combine_chunks()])

    def lookup(keys: pa.Array, **by: bool) -> SliceLookup:
        return SliceLookup(KeyReader(context.reader), file_slice, keys, KeyIndex(keys), **by)

    assert lookup(absent, by_ranges=True).candidates().sum() > 0
    assert not lookup(absent, by_ranges=True, by_bloom=True).candidates().any()
    assert lookup(both, by_ranges=True, by_bloom=True).candidates().tolist() == [False] * len(absent) + [True] * len(
        absent
    )
    assert lookup(both, by_bloom=True).run().tolist() == list(range(len(absent), 2 * len(absent)))


def test_a_table_that_stores_no_keys(golden: Golden) -> None:
    context = context_of(golden("cow_virtualkeys_v9"))
    rows = incoming(("k0000", "p0"), ("k0001", "p1"), ("k0001", "p0"), ("zz", "p0"))
    for kind in ("SIMPLE", "BLOOM"):
        located = index_of(context, {"hoodie.index.type": kind}).locate(rows).column(FILE_ID).to_pylist()
        assert located[0] is not None and located[1] is not None and located[2:] == [None, None]


def test_the_record_index_knows_what_the_files_say(golden: Golden) -> None:
    context = context_of(golden("cow_oddkeys_rli_v9"))
    rows = stored_rows(context)
    options = {"hoodie.index.type": "RECORD_INDEX"}
    located = index_of(context, options).locate(rows)
    assert located.column(FILE_ID).to_pylist() == file_ids(rows)
    stays = index_of(context, options).locate(incoming((rows.column(RECORD_KEY)[0].as_py(), "elsewhere"), ("new", "p")))
    assert stays.column(PARTITION_PATH).to_pylist() == [rows.column(PARTITION_PATH)[0].as_py(), "p"]
    assert stays.column(FILE_ID).to_pylist() == [file_ids(rows)[0], None]
    with pytest.raises(InvalidRequest, match="record index"):
        index_of(context_of(golden("cow_simple_v9")), options)


def test_an_index_task_can_be_sent_away(golden: Golden) -> None:
    context = context_of(golden("mor_deletes_v9"))
    file_slice = next(file_slice for path in context.view.partitions() for file_slice in context.view.slices(path))
    keys = stored_rows(context).column(RECORD_KEY).combine_chunks().unique()
    task = SliceLookup(KeyReader(context.reader), file_slice, keys, KeyIndex(keys))
    assert len(task.run()) > 0
    assert pickle.loads(pickle.dumps(task)).run().tolist() == task.run().tolist()
