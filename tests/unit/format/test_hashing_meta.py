"""The ring of a partition: real files byte for byte, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidRequest, LakebedError
from lakebed.format.hashing_meta import (
    RING_END,
    HashingMetadata,
    HashingNode,
    NodeTag,
    initial_hashing,
    parse_hashing_meta,
    render_hashing_meta,
)

REAL = b"""{
  "version" : 0,
  "partitionPath" : "p0",
  "instant" : "00000000000000",
  "numBuckets" : 2,
  "seqNo" : 0,
  "nodes" : [ {
    "value" : 1073741824,
    "fileIdPrefix" : "dad73638-0699-3d64-9014-d55bccb9782d",
    "tag" : "NORMAL"
  }, {
    "value" : 2147483647,
    "fileIdPrefix" : "a13eb516-36a4-3dd9-8c1c-801a3ef285ac",
    "tag" : "NORMAL"
  } ]
}"""


def test_the_initial_ring_is_hudis_byte_for_byte(golden: Callable[[str], Path]) -> None:
    files = sorted(golden("mor_consistent_v9").rglob("*.hashing_meta"))
    assert len(files) == 2
    for file in files:
        assert render_hashing_meta(initial_hashing(file.parent.name, 2)) == file.read_bytes()
        assert parse_hashing_meta(file.read_bytes(), "f") == initial_hashing(file.parent.name, 2)
    assert REAL in {file.read_bytes() for file in files}


def test_nodes_that_a_resizing_removed_take_no_keys() -> None:
    nodes = (HashingNode(5, "a"), HashingNode(9, "b", NodeTag.DELETE), HashingNode(RING_END, "c", NodeTag.REPLACE))
    metadata = HashingMetadata("p", nodes, "20260101000000000", 3)
    assert parse_hashing_meta(render_hashing_meta(metadata), "f") == metadata
    assert [node.file_id for node in metadata.ring] == ["a-0", "c-0"]


@given(st.integers(1, 300), st.text(st.characters(codec="utf-8")))
def test_initial_rings_cover_everything_once(buckets: int, partition: str) -> None:
    metadata = initial_hashing(partition, buckets)
    ends = [node.value for node in metadata.nodes]
    assert ends == sorted(set(ends)) and ends[-1] == RING_END and len(ends) == buckets
    assert len({node.file_id for node in metadata.nodes}) == buckets
    assert parse_hashing_meta(render_hashing_meta(metadata), "f") == metadata


@pytest.mark.parametrize("buckets", [0, -1, 1 << 30])
def test_senseless_counts(buckets: int) -> None:
    with pytest.raises(InvalidRequest):
        initial_hashing("p", buckets)


@given(st.data())
def test_damage_is_an_error_or_harmless(data: st.DataObject) -> None:
    raw = bytearray(REAL)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    try:
        parse_hashing_meta(bytes(raw[:cut]), "f")
    except LakebedError as error:
        assert error.file == "f"


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": []},
        {"nodes": [{"value": 1, "fileIdPrefix": "../x"}]},
        {"nodes": [{"value": 1 << 40, "fileIdPrefix": "x"}]},
        {"nodes": [{"value": 1, "fileIdPrefix": "x"}, {"value": 1, "fileIdPrefix": "y"}]},
        {"nodes": [{"value": 1, "fileIdPrefix": "x", "tag": "DELETE"}]},
        {"nodes": [{"value": 1, "fileIdPrefix": "x", "tag": ["?"]}]},
        {"nodes": [7]},
        {"version": 1},
        {"instant": None},
    ],
)
def test_senseless_content_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(LakebedError):
        parse_hashing_meta(json.dumps(json.loads(REAL) | change).encode(), "f")
