"""Orders of rows as orders of bytes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.config.clustering_options import ClusteringOptions, Curve
from lakebed.errors import InvalidRequest
from lakebed.services.clustering_order import SAMPLE_ROWS, RowOrdering, check_sortable, hilbert, interleaved

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "n": (pa.int32(), st.integers(-5, 5)),
    "f": (pa.float64(), st.floats(allow_nan=False)),
    "s": (pa.string(), st.text(max_size=4)),
    "b": (pa.binary(), st.binary(max_size=3)),
    "d": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us"), st.datetimes()),
    "o": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}), max_size=12)


def comparable(value: Any) -> tuple[bool, Any]:
    value = value.encode() if isinstance(value, str) else value
    return (value is not None, 0 if value is None else value)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, names=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True))
def test_linear_bytes_compare_as_the_values_do(rows: list[dict[str, Any]], names: list[str]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    keys = RowOrdering(tuple(names), Curve.LINEAR).keys(batch).to_pylist()
    wanted = [tuple(comparable(row[name]) for name in names) for row in rows]
    for a, key in enumerate(keys):
        for b, other in enumerate(keys):
            assert (key < other) == (wanted[a] < wanted[b]), (names, rows[a], rows[b])


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_hilberts_curve_visits_every_place_and_goes_in_single_steps(axes: int) -> None:
    bits = 3
    grid = [axis.ravel() for axis in np.meshgrid(*[np.arange(1 << bits, dtype=np.uint64)] * axes)]
    places = interleaved(hilbert(grid, bits), bits)
    assert sorted(places.tolist()) == list(range(1 << bits * axes))
    order = np.argsort(places)
    steps = sum(np.abs(np.diff(axis[order].astype(np.int64))) for axis in grid)
    assert set(np.asarray(steps).tolist()) == {1}


def test_z_order_takes_bits_in_turn() -> None:
    found = interleaved([np.array([0b10], np.uint64), np.array([0b01], np.uint64)], 2)
    assert found.tolist() == [0b1001]


@pytest.mark.parametrize("curve", [Curve.Z_ORDER, Curve.HILBERT])
def test_a_curve_keeps_files_narrow_in_both_columns(curve: Curve) -> None:
    """Columns of very different scale, and text with a common beginning, count alike."""
    chance = np.random.default_rng(5)
    small, large = chance.integers(0, 100, 8000), chance.integers(0, 10**12, 8000)
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([f"user-number-{i:03d}" for i in small]), "b": pa.array(large.tolist())}
    )
    keys = RowOrdering(("a", "b"), curve).learned([batch]).keys(batch).to_pylist()
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
    parts = np.split(order, 16)
    assert np.mean([np.ptp(small[part]) for part in parts]) < 50
    assert np.mean([np.ptp(large[part]) for part in parts]) < 5 * 10**11


def test_the_sample_stays_small_and_comes_from_everywhere() -> None:
    size = SAMPLE_ROWS // 2
    batches = [pa.RecordBatch.from_pydict({"a": pa.array(range(n * size, (n + 1) * size))}) for n in range(9)]
    learned = RowOrdering(("a",), Curve.Z_ORDER).learned(batches)
    [bounds] = learned.bounds
    assert len(bounds) <= 1 << learned.bits
    assert bounds[-1] - (1 << 63) >= 8 * size
    keys = learned.keys(batches[0]).to_pylist() + learned.keys(batches[8]).to_pylist()
    assert keys == sorted(keys)


def test_no_rows_and_only_nulls() -> None:
    nulls = pa.RecordBatch.from_pydict({"a": pa.nulls(3, pa.string()), "b": pa.nulls(3, pa.float64())})
    for curve in Curve:
        ordering = RowOrdering(("a", "b"), curve)
        assert len(set(ordering.learned([nulls]).keys(nulls).to_pylist())) == 1
        assert len(ordering.learned([]).keys(nulls)) == 3


def test_decimals_and_dictionaries_have_an_order() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "d": pa.array([Decimal("1.5"), Decimal("-2.5"), None], pa.decimal128(10, 2)),
            "s": pa.array(["b", "a", "b"]).dictionary_encode(),
            "t": pa.array([dt.time(3), dt.time(1), dt.time(2)]),
        }
    )
    for name, wanted in {"d": [2, 1, 0], "s": [1, 0, 2], "t": [1, 2, 0]}.items():
        keys = RowOrdering((name,), Curve.LINEAR).keys(batch).to_pylist()
        assert sorted(range(3), key=keys.__getitem__) == wanted


def test_columns_without_an_order_are_refused() -> None:
    schema = pa.schema([("a", pa.list_(pa.int64()))])
    with pytest.raises(InvalidRequest, match="cannot be sorted by 'a'"):
        check_sortable(["a"], schema)


@pytest.mark.parametrize(
    "properties",
    [
        {"hoodie.clustering.plan.strategy.max.num.groups": "0"},
        {"hoodie.clustering.plan.strategy.daybased.lookback.partitions": "-1"},
        {"hoodie.clustering.plan.strategy.partition.regex.pattern": "("},
        {"hoodie.layout.optimize.strategy": "spiral"},
    ],
)
def test_options_that_make_no_sense(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        ClusteringOptions.from_properties(properties)
