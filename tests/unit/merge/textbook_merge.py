"""The merge by the loser tree, a row at a time: too slow for data, right to compare the vector merge with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from lakebed.merge.loser_tree import LoserTree

T = TypeVar("T")


def merge_rows(runs: Sequence[Iterable[tuple[bytes, T]]]) -> Iterator[tuple[bytes, int, T]]:
    """All rows of sorted runs as (key, run, row), by key and then by age."""
    sources = [iter(run) for run in runs]
    heads = [next(source, None) for source in sources]
    tree = LoserTree([head[0] if head else None for head in heads])
    while tree.key is not None:
        run = tree.winner
        head = heads[run]
        assert head is not None
        yield head[0], run, head[1]
        heads[run] = following = next(sources[run], None)
        tree.advance(following[0] if following else None)
