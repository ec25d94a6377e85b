"""A filter filled portion by portion is the filter of all keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.bloom_builder import BloomBuilder
from lakebed.format.bloom_filter import DynamicBloomFilter, Sizing


@given(portions=st.lists(st.integers(0, 90), max_size=8), keys=st.integers(3, 40), rows=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_bit_for_bit_the_filter_of_all_keys(portions: list[int], keys: int, rows: int) -> None:
    sizing = Sizing(keys, 1e-3, keys * rows)
    everything = [f"key-{number}" for number in range(sum(portions))]
    builder, at = BloomBuilder(sizing), 0
    for size in portions:
        builder.add(pa.array(everything[at : at + size], pa.string()))
        at += size
    built = builder.finish()
    exact = DynamicBloomFilter.build(everything, sizing)
    if len(everything) <= 12 * keys * rows:
        assert built.to_bytes() == exact.to_bytes()
    assert all(built.might_contain_many(everything)) if everything else True


def test_far_beyond_its_bound_a_filter_denies_nothing() -> None:
    builder = BloomBuilder(Sizing(10, 1e-3, 20))
    builder.add(pa.array([f"k{number}" for number in range(500)]))
    built = builder.finish()
    assert built.might_contain("never seen")
    assert DynamicBloomFilter.from_base64(built.to_base64()).keys_in_last_row == 490


def test_a_null_key_is_refused() -> None:
    builder = BloomBuilder()
    builder.add(pa.array(["a", None]))
    with pytest.raises(Exception, match="null"):
        builder.finish()
