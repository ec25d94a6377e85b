from __future__ import annotations

import heapq
import math
import random

import pytest

from lakebed.merge.loser_tree import LoserTree, key_bytes
from tests.unit.merge.textbook_merge import merge_rows


@pytest.mark.parametrize("k", range(1, 65))
def test_an_advance_costs_one_path_to_the_top(k: int) -> None:
    chance = random.Random(k)
    runs = [sorted(chance.randbytes(2) for _ in range(chance.randint(0, 20))) for _ in range(k)]
    at = [0] * k
    tree = LoserTree([run[0] if run else None for run in runs])
    assert tree.comparisons == k - 1
    out = []
    while tree.key is not None:
        winner = tree.winner
        out.append((runs[winner][at[winner]], winner))
        at[winner] += 1
        before = tree.comparisons
        tree.advance(runs[winner][at[winner]] if at[winner] < len(runs[winner]) else None)
        assert tree.comparisons - before <= math.ceil(math.log2(k))
    assert out == sorted((key, number) for number, run in enumerate(runs) for key in run)


def test_equal_keys_come_oldest_run_first() -> None:
    runs = [[(b"a", "base"), (b"b", "base")], [(b"a", "log 1")], [(b"a", "log 2"), (b"c", "log 2")]]
    assert [(key, row) for key, _, row in merge_rows(runs)] == [
        (b"a", "base"),
        (b"a", "log 1"),
        (b"a", "log 2"),
        (b"b", "base"),
        (b"c", "log 2"),
    ]


def test_no_run_and_empty_runs() -> None:
    assert list(merge_rows([])) == []
    assert list(merge_rows([[], [], []])) == []
    assert LoserTree([]).key is None


def test_key_order_is_utf8_bytes_not_utf16_units() -> None:
    emoji, replacement = "\U0001f600", "�"
    assert key_bytes(replacement) < key_bytes(emoji)
    assert replacement.encode("utf-16-be") > emoji.encode("utf-16-be")  # what Java's compareTo would say
    merged = [row for _, _, row in merge_rows([[(key_bytes(emoji), "emoji")], [(key_bytes(replacement), "U+FFFD")]])]
    assert merged == ["U+FFFD", "emoji"]


def test_agrees_with_a_heap_on_many_runs() -> None:
    chance = random.Random(9)
    runs = [[(key, n) for key in sorted({chance.randbytes(3) for _ in range(200)})] for n in range(37)]
    wanted = [(key, n) for key, n in heapq.merge(*runs)]
    assert [(key, number) for key, number, _ in merge_rows(runs)] == wanted
