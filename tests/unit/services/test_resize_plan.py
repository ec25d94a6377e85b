"""Which buckets of a ring are split and merged: bounds hold, and every key stays where its group went."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.errors import InvalidRequest, LakebedError
from lakebed.format.hashing_meta import (
    RING_END,
    HashingMetadata,
    HashingNode,
    NodeTag,
    initial_hashing,
    parse_child_nodes,
    render_child_nodes,
)
from lakebed.index.consistent_ring import merge_nodes, node_of_hashes, split_node, with_children
from lakebed.services.resize_plan import BucketChange, Limits, limits_of, resize

REAL_SPLIT = (
    '[ {\n  "value" : 536870911,\n  "fileIdPrefix" : "1abb2b7c-7a2d-42ad-84f8-f61f500df258",\n  "tag" : "REPLACE"\n}, '
    '{\n  "value" : 1073741824,\n  "fileIdPrefix" : "5038ed7f-b292-48fd-87b8-88702928e963",\n  "tag" : "REPLACE"\n} ]'
)
REAL_MERGE = (
    '[ {\n  "value" : 1073741824,\n  "fileIdPrefix" : null,\n  "tag" : "DELETE"\n}, '
    '{\n  "value" : 536870911,\n  "fileIdPrefix" : "61a23b58-b92b-4ccc-ba1e-d7838f41951a",\n  "tag" : "REPLACE"\n} ]'
)
LIMITS = Limits(split_above=100, merge_below=20, most=8, least=1)


def ring_of(*values: int) -> HashingMetadata:
    return HashingMetadata("p", tuple(HashingNode(value, f"n{value}") for value in values))


def planned(ring: HashingMetadata, sizes: list[int | None], limits: Limits = LIMITS, **busy: str) -> Any:
    names = itertools.count()
    known = {node.file_id: size for node, size in zip(ring.ring, sizes, strict=True) if size is not None}
    return resize(ring, known, {f"{k}-0": why for k, why in busy.items()}, limits, lambda: f"new{next(names)}")


def test_nodes_are_written_and_read_as_hudi_does() -> None:
    assert render_child_nodes(parse_child_nodes(REAL_SPLIT, "f")) == REAL_SPLIT
    assert render_child_nodes(parse_child_nodes(REAL_MERGE, "f")) == REAL_MERGE
    assert [node.tag for node in parse_child_nodes(REAL_MERGE, "f")] == [NodeTag.DELETE, NodeTag.REPLACE]


@given(st.text(max_size=40) | st.sampled_from([REAL_SPLIT, REAL_MERGE]), st.integers(0, 300), st.text(max_size=3))
def test_damaged_nodes_are_refused(text: str, place: int, put: str) -> None:
    with suppress(LakebedError):
        assert parse_child_nodes(text[:place] + put + text[place + 1 :], "f")


def test_splits_cut_where_hudi_cuts() -> None:
    ring = initial_hashing("p0", 2).ring
    assert [node.value for node in split_node(ring, 0, ("a", "b"))] == [536870911, 1073741824]
    assert [node.value for node in split_node(ring, 1, ("a", "b"))] == [1610612735, 2147483647]
    alone = (HashingNode(536870911, "x"),)
    assert [node.value for node in split_node(alone, 0, ("a", "b"))] == [536870911 + (1 << 30), 536870911]
    assert split_node((HashingNode(5, "x"), HashingNode(6, "y")), 1, ("a", "b")) == ()


def test_large_buckets_are_split_while_there_may_be_more() -> None:
    ring = initial_hashing("p", 4)
    changes, left = planned(ring, [150, 90, 500, 101], Limits(100, 20, most=6, least=4))
    assert [change.file_ids for change in changes] == [(ring.ring[2].file_id,), (ring.ring[0].file_id,)], (
        "largest first"
    )
    assert "between 20 and 100" in left[ring.ring[1].file_id]
    assert "not have more than 6" in left[ring.ring[3].file_id]


def test_small_neighbours_are_merged_around_the_ring() -> None:
    ring = ring_of(10, 20, 30, 40)
    [one], left = planned(ring, [5, 50, 9, 5])
    assert one.file_ids == ("n30-0", "n40-0", "n10-0")
    assert [(n.value, n.tag) for n in one.children] == [(30, "DELETE"), (40, "DELETE"), (10, "REPLACE")]
    assert set(left) == {"n20-0"}
    [one], _ = planned(ring, [5, 50, 9, 5], Limits(100, 20, most=8, least=3))
    assert one.file_ids == ("n30-0", "n40-0"), "not fewer than three"
    [one], _ = planned(ring, [1, 1, 1, 1])
    assert len(one.file_ids) == 4
    two, _ = planned(ring, [19, 19, 19, 19])
    assert [change.file_ids for change in two] == [("n10-0", "n20-0"), ("n30-0", "n40-0")], "a merged one is not small"


def test_what_is_busy_empty_or_a_stranger_stays() -> None:
    ring = ring_of(10, 20, 30)
    assert planned(ring, [1, None, 1])[0][0].file_ids == ("n30-0", "n10-0"), "an empty bucket is no neighbour to merge"
    changes, left = planned(ring, [1, 1, 500], n20="the compaction 1 will take it", n30="the compaction 2 will take it")
    assert changes == []
    assert left["n20-0"] == "the compaction 1 will take it"
    assert left["n30-0"] == "the compaction 2 will take it"
    assert "no neighbour" in left["n10-0"]
    _, left = resize(ring, {"other-0": 1000}, {}, LIMITS)
    assert left == {"other-0": "it is not on the ring of its partition"}


def test_bounds_from_options() -> None:
    ring, size = initial_hashing("p", 3), {"hoodie.parquet.max.file.size": "1000"}
    assert limits_of(ring, ClusteringOptions(), size) == Limits(2000, 200, 3, 3), "as many as there are"
    assert limits_of(
        ring, ClusteringOptions(max_buckets=8), {**size, "hoodie.bucket.index.num.buckets": "2"}
    ) == Limits(2000, 200, 8, 2)
    chosen = ClusteringOptions(min_buckets=1, split_threshold=1.5, merge_threshold=0.5)
    assert limits_of(ring, chosen, size) == Limits(1500, 500, 3, 1)
    for wrong in ({"max_buckets": 0}, {"min_buckets": 9, "max_buckets": 8}):
        with pytest.raises(InvalidRequest, match="bucket"):
            ClusteringOptions(**wrong)  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, RING_END), min_size=1, max_size=12, unique=True).map(sorted),
    st.lists(st.none() | st.integers(0, 250), min_size=12, max_size=12),
    st.integers(1, 14),
    st.integers(1, 14),
)
def test_any_plan_keeps_every_key_with_its_rows(
    values: list[int], sizes: list[int | None], one: int, other: int
) -> None:
    ring = ring_of(*values)
    limits = Limits(100, 40, most=max(one, other), least=min(one, other))
    changes, left = planned(ring, sizes[: len(values)], limits)
    touched = [file_id for change in changes for file_id in change.file_ids]
    known = {node.file_id for node, size in zip(ring.ring, sizes, strict=False) if size is not None}
    assert sorted([*touched, *left]) == sorted(known), "each once, with a reason where nothing happens"
    after = with_children(ring, [child for change in changes for child in change.children], "1", "f")
    assert after.seq_no == ring.seq_no + 1
    assert len(after.ring) <= max(limits.most, len(values))
    assert len(after.ring) >= min(limits.least, len(values))
    hashes = np.unique(np.array([*values, *(v + 1 for v in values), *range(0, RING_END, RING_END // 97)], np.int64))
    made_of = {child: change for change in changes for child in kept(change)}
    before, now = node_of_hashes(ring.ring, hashes), node_of_hashes(after.ring, hashes)
    for old, new in zip(before.tolist(), now.tolist(), strict=True):
        old_id, new_id = ring.ring[old].file_id, after.ring[new].file_id
        assert old_id == new_id or old_id in made_of[new_id].file_ids


def kept(change: BucketChange) -> list[str]:
    return [child.file_id for child in change.children if child.tag is NodeTag.REPLACE]


@pytest.mark.parametrize(
    "children",
    [
        (HashingNode(11, "", NodeTag.DELETE),),
        (HashingNode(10, "x", NodeTag.NORMAL),),
        merge_nodes(ring_of(10, 20).ring, "n30"),
        (HashingNode(10, "", NodeTag.DELETE), HashingNode(20, "", NodeTag.DELETE), HashingNode(30, "", NodeTag.DELETE)),
    ],
    ids=["nobody there", "no change", "an id twice", "nothing left"],
)
def test_children_that_make_no_ring(children: tuple[HashingNode, ...]) -> None:
    with pytest.raises(LakebedError):
        with_children(ring_of(10, 20, 30), children, "1", "f")
