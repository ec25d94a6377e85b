"""xxHash32 over arrays, against the reference implementation."""

from __future__ import annotations

import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.xx_hash import hashed_texts, ring_hashes, xx_hashes


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=80)), st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_equal_to_the_reference(texts: list[str], seed: int, skip: int) -> None:
    wanted = [xxhash.xxh32_intdigest(text.encode(), seed) for text in texts]
    assert xx_hashes(pa.array(texts, pa.string()).slice(skip), seed).tolist() == wanted[skip:]


def test_the_hash_fields_are_joined() -> None:
    keys = pa.array(["id:a,v:__null__,s:__empty__", "plain", "id:x,v:1,s:z:k,q", "id:5", "s:1,id:2"])
    fields = ["id", "v", "s"]
    assert hashed_texts(keys, fields, fields).to_pylist() == ["anull", "plain", "x1z:k,q", "id:5", "12"]
    assert hashed_texts(keys, ["id"], fields).to_pylist() == ["a", "plain", "x", "id:5", "2"]
    assert ring_hashes(keys, fields, fields).max() < 2**31
