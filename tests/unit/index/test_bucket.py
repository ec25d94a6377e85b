"""Bucket indexes: rows of real tables go where real Hudi put them, and new buckets get one id everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.format.names import hashing_meta_dir
from lakebed.index.bucket import BucketIndex, bucket_of_file_id, fixed_file_id
from lakebed.index.consistent import ConsistentBucketIndex, load_hashing
from lakebed.index.locations import FILE_ID, INSTANT, OLD_FILE_ID
from tests.unit.index.tables import context_of, file_ids, incoming, index_of, stored_rows

Golden = Callable[[str], Path]
COUNT = "hoodie.bucket.index.num.buckets"


def bucket_options(count: int, **more: str) -> dict[str, str]:
    return {"hoodie.index.type": "BUCKET", COUNT: str(count), **more}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mor_bucket_v9", bucket_options(3)),
        ("mor_oddkeys_bucket_v9", bucket_options(2)),
        ("complex_keys_mor_v9", bucket_options(2, **{"hoodie.bucket.index.hash.field": "id,s"})),
        ("mor_oddkeys_complex_v8", bucket_options(3, **{"hoodie.bucket.index.hash.field": "id,q"})),
        ("mor_nbcc_v9", bucket_options(2)),
        ("mor_consistent_v9", bucket_options(2, **{"hoodie.index.bucket.engine": "CONSISTENT_HASHING"})),
    ],
)
def test_rows_go_where_hudi_put_them(name: str, options: dict[str, str], golden: Golden) -> None:
    context = context_of(golden(name))
    rows = stored_rows(context)
    located = index_of(context, options).locate(rows)
    assert rows.num_rows > 20
    assert located.column(FILE_ID).to_pylist() == file_ids(rows)
    assert located.column(INSTANT).null_count == 0
    assert located.column(OLD_FILE_ID).null_count == rows.num_rows
    assert located.select(rows.schema.names).equals(rows)


def test_a_new_bucket_gets_the_same_id_in_every_process(golden: Golden) -> None:
    rows = incoming(*((f"k{number}", "fresh") for number in range(50)))
    first, second = (BucketIndex(context_of(golden("mor_bucket_v9")), 3, ("id",)).locate(rows) for _ in range(2))
    assert first.equals(second)
    ids = set(first.column(FILE_ID).to_pylist())
    assert sorted(bucket_of_file_id(file_id) or 0 for file_id in ids) == [0, 1, 2]
    assert first.column(INSTANT).null_count == 50
    assert all(len(file_id) == 38 and file_id.endswith("-0") for file_id in ids)


def test_batches_find_what_the_whole_finds(golden: Golden) -> None:
    context = context_of(golden("mor_bucket_v9"))
    rows = pa.concat_tables([stored_rows(context).select([0, 1]).rename_columns(incoming().schema.names)])
    index = BucketIndex(context, 3, ("id",))
    file_slices = [index.locate(rows.slice(start, 7)) for start in range(0, rows.num_rows, 7)]
    assert pa.concat_tables(file_slices).equals(index.locate(rows))
    assert index.locate(rows.slice(0, 0)).num_rows == 0


def test_a_retired_id_is_not_used_again(golden: Golden) -> None:
    """The partition was deleted: its groups are known and gone, and the new ids differ."""
    context = context_of(golden("mor_delpart_bucket_v8"))
    retired = {
        group.id for path in context.view.partitions() for group in context.view.file_groups(path) if group.replaced_at
    }
    assert retired
    index = BucketIndex(context, 2, ("id",))
    for group in retired:
        bucket = bucket_of_file_id(group.file_id)
        assert bucket is not None
        assert index.group(group.partition_path, bucket).file_id != group.file_id


def test_fixed_ids_for_writers_that_do_not_block(golden: Golden) -> None:
    index = BucketIndex(context_of(golden("mor_nbcc_v9")), 2, ("id",), fixed_ids=True)
    assert index.group("fresh", 1).file_id == fixed_file_id(1) == "00000001-0000-0000-0000-000000000000-0"
    existing = {group.file_id for path in index.context.view.partitions() for group in [index.group(path, 0)]}
    assert existing == {fixed_file_id(0)}


def test_the_bucket_count_is_never_guessed(golden: Golden) -> None:
    context = context_of(golden("mor_bucket_v9"))
    with pytest.raises(InvalidRequest, match="num_buckets"):
        index_of(context, {"hoodie.index.type": "BUCKET"})
    with pytest.raises(InvalidRequest, match=r"bucket 2 of a table with 2|not written with 2 buckets"):
        index_of(context, bucket_options(2)).locate(stored_rows(context))
    with pytest.raises(InvalidRequest, match="not a key column"):
        index_of(context, bucket_options(3, **{"hoodie.bucket.index.hash.field": "txt"}))
    with pytest.raises(InvalidRequest, match="was not written by a bucket index"):
        simple = context_of(golden("cow_simple_v9"))
        index_of(simple, bucket_options(2)).locate(stored_rows(simple))


def test_two_groups_of_one_bucket_are_corruption(golden_copy: Golden) -> None:
    path = golden_copy("mor_nbcc_v9")
    folder = next(log.parent for log in path.rglob(".00000000-*") if ".hoodie" not in log.parts)
    for log in folder.glob(".00000000-*"):
        (folder / log.name.replace("000000000000-0", "000000000001-0")).write_bytes(log.read_bytes())
    context = context_of(path)
    context.view.commits.check_names = False  # type: ignore[attr-defined]
    with pytest.raises(CorruptTable, match="two file groups hold bucket 0"):
        BucketIndex(context, 2, ("id",)).group(folder.name, 0)


def test_a_new_partition_gets_its_ring(golden_copy: Golden) -> None:
    context = context_of(golden_copy("mor_consistent_v9"))
    rows = incoming(*((f"k{number}", "fresh") for number in range(40)))
    index = ConsistentBucketIndex(context, 4, ("id",))
    located = index.locate(rows)
    assert load_hashing(context.client, "fresh") is None, "looking for places leaves nothing behind"
    index.save_initial("fresh")
    ring = load_hashing(context.client, "fresh")
    assert ring is not None and len(ring.nodes) == 4
    assert set(located.column(FILE_ID).to_pylist()) == {node.file_id for node in ring.nodes}
    again = ConsistentBucketIndex(context_of(Path(context.client.url.removeprefix("file://"))), 9, ("id",))
    assert again.locate(rows).equals(located)


def test_an_unfinished_resizing_does_not_count(golden_copy: Golden) -> None:
    path = golden_copy("mor_consistent_v9")
    folder = path / hashing_meta_dir("p0")
    initial = (folder / "00000000000000.hashing_meta").read_text()
    resized = initial.replace('"00000000000000"', '"20990101000000000"').replace("dad73638", "eeeeeeee")
    (folder / "20990101000000000.hashing_meta").write_text(resized)
    before = load_hashing(context_of(path).client, "p0")
    assert before is not None and before.instant == "00000000000000"
    (folder / "20990101000000000.commit").write_text("")
    after = load_hashing(context_of(path).client, "p0")
    assert after is not None and after.nodes[0].file_id_prefix.startswith("eeeeeeee")


def test_every_row_has_a_place(golden: Golden) -> None:
    context = context_of(golden("mor_bucket_v9"))
    located = BucketIndex(context, 3, ("id",)).locate(stored_rows(context))
    assert not pc.any(pc.is_null(located.column(FILE_ID))).as_py()
