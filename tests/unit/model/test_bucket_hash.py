from __future__ import annotations

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.bucket_hash import bucket_id, bucket_ids, key_hashes, split_key, string_hashes
from tests.conftest import expected


def java_hash(text: str) -> int:
    """String.hashCode, spelled out."""
    units = text.encode("utf-16-le")
    h = 0
    for i in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[i : i + 2], "little")) & 0xFFFFFFFF
    return h


@pytest.mark.parametrize(
    ("name", "buckets", "hash_fields", "key_fields"),
    [
        ("mor_bucket_v9", 3, ["id"], ["id"]),
        ("mor_oddkeys_bucket_v9", 2, ["id"], ["id"]),
        ("complex_keys_mor_v9", 2, ["id", "s"], ["id", "v2", "s"]),
        ("mor_nbcc_v9", 2, ["id"], ["id"]),
        ("mor_pending_compaction_v9", 2, ["id"], ["id"]),
    ],
)
def test_every_key_of_real_bucket_tables_is_in_its_bucket(
    name: str, buckets: int, hash_fields: list[str], key_fields: list[str]
) -> None:
    answer = expected(name)["snapshot"]
    columns = dict(zip(answer["columns"], zip(*answer["rows"], strict=True), strict=True))
    wanted = [int(file[:8]) for file in columns["_hoodie_file_name"]]
    keys = pa.array(columns["_hoodie_record_key"], pa.string())
    assert len(set(wanted)) > 1
    assert bucket_ids(keys, buckets, hash_fields, key_fields).to_pylist() == wanted


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])))))
def test_string_hash_equals_javas(texts: list[str | None]) -> None:
    wanted = [0 if text is None else java_hash(text) for text in texts]
    for kind in (pa.string(), pa.large_string()):
        array = pa.array(["skipped", *texts], kind).slice(1)
        assert string_hashes(array).tolist() == wanted


def test_known_hashes() -> None:
    assert java_hash("hello") == 99162322  # from Java
    assert string_hashes(pa.array(["hello", "", "a\U0001f600"])).tolist() == [99162322, 0, java_hash("a\U0001f600")]


VALUES = st.text(st.sampled_from("ab:,x\n\U0001f600_"), max_size=6)


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=20))
def test_composite_keys_hash_as_their_split_parts(rows: list[tuple[str, str, str]]) -> None:
    keys = [f"a:{a},b:{b},c:{c}" for a, b, c in rows]
    wanted = []
    for key in keys:
        h = 1
        for name, value in split_key(key):
            if name in ("a", "c"):
                value = {"__empty__": ""}.get(value, value)
                h = (31 * h + (0 if value == "__null__" else java_hash(value))) & 0xFFFFFFFF
        wanted.append(h)
    assert key_hashes(pa.array(keys), ["c", "a"], ["a", "b", "c"]).tolist() == wanted


def test_splitting_follows_the_rule_for_commas_and_colons() -> None:
    assert split_key("id:k0053,v2:2,s:z:k0053,q") == [("id", "k0053"), ("v2", "2"), ("s", "z:k0053,q")]
    assert split_key("id:a:b,c,d:e") == [("id", "a:b,c"), ("d", "e")]
    assert split_key("plain") == []


def test_null_and_empty_parts() -> None:
    keys = pa.array(["a:__null__,b:__empty__", "__null__"])
    assert key_hashes(keys, ["a", "b"], ["a", "b"]).tolist() == [31 * 31, 31 + java_hash("__null__")]


def test_chunked_columns_and_no_rows() -> None:
    chunked = pa.chunked_array([["k1", "k2"], ["k3"]])
    assert bucket_ids(chunked, 7, ["id"], ["id"]).to_pylist() == [
        bucket_id(f"k{i}", 7, ["id"], ["id"]) for i in (1, 2, 3)
    ]
    assert len(bucket_ids(pa.array([], pa.string()), 7, ["id"], ["id"])) == 0


def test_hashing_is_done_in_vectors() -> None:
    keys = pa.array([f"a:{i},b:value {i}" for i in range(300_000)])
    start = time.perf_counter()
    key_hashes(keys, ["a", "b"], ["a", "b"])
    assert time.perf_counter() - start < 5
