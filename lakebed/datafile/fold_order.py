"""The position of a log block in merge order, computed from the block's own header alone.

    an ordinary block   stands at the instant that wrote it
    a compacted block   stands at the newest instant that it covers, and hides the blocks of all that it covers

      A  B  C  D           writes, in order of requested time
      A  B  L5  ·  ·       L5 covers C and D, and stands at D
      L6 ·  L5  ·  ·       L6 covers A and B, and stands at B: below L5, though L6 is the later action

By its own, later instant a compacted block would win over writes that came in between, and over the results of
compactions that ran before it. COMPACTED_BLOCK_TIMES names what it covers, so its place is the same before and after a
clean took the covered logs. A compacted block all of whose originals a later one covers is superseded, named or not.

Blocks of one instant stay in the order of the slice (file version, data before deletes, place in the file). So do the
blocks of logs that several writes share, as tables from before version 8 have them: an instant that is smaller than
one before it there is merged after it all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import CorruptTable
from lakebed.format.log.block import LogBlock
from lakebed.model.instant import comparable


@dataclass(frozen=True, slots=True)
class Standing:
    """A block that counts, by its index in the slice, and the instant at whose place it stands."""

    index: int
    stands_at: str


@dataclass(frozen=True, slots=True)
class FoldOrder:
    """The blocks of a slice that count, oldest first, and the indexes of those that do not."""

    standing: tuple[Standing, ...]
    superseded: tuple[int, ...] = ()
    """Covered by a block that counts."""
    in_base: tuple[int, ...] = ()
    """Compacted blocks of what the base file holds already."""
    covered: frozenset[str] = frozenset()
    """The instants for which other blocks that count stand."""


def fold_order(blocks: Sequence[LogBlock], base_instant_time: str | None) -> FoldOrder:
    """The order of live blocks, passed in slice order, over a base file of that instant, None where there is none."""
    covers = _covers(blocks)
    covered = set().union(*covers.values(), _superseded(covers)) if covers else set()
    places = _places(blocks, covers)
    keyed: list[tuple[tuple[str, int, int], Standing]] = []
    superseded: list[int] = []
    in_base: list[int] = []
    for index, block in enumerate(blocks):
        instant = block.requested_time
        if instant in covered:
            superseded.append(index)
        elif instant not in covers:
            keyed.append(((*places.by_index[index], index), Standing(index, instant)))
        else:
            originals = _originals(covers, instant)
            newest = max(originals, key=comparable)
            if base_instant_time is not None and _is_in_base(originals, newest, places, base_instant_time):
                in_base.append(index)
                continue
            here = places.by_instant.get(newest, (comparable(newest), len(blocks)))
            keyed.append(((*here, index), Standing(index, newest)))
    keyed.sort(key=lambda item: item[0])
    return FoldOrder(tuple(one for _, one in keyed), tuple(superseded), tuple(in_base), frozenset(covered))


def covered_by(blocks: Sequence[LogBlock], instants: Iterable[str]) -> tuple[str, ...]:
    """The writes that the blocks of some instants stand for, oldest first: log compactions by what they merged.

    A list of originals stays right when the compacted logs in between are cleaned away.
    """
    covers = _covers(blocks)
    found: set[str] = set()
    for instant in instants:
        found |= _originals(covers, instant) if instant in covers else {instant}
    return tuple(sorted(found, key=comparable))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where ordinary blocks stand: by their index, and the last of an instant by its name."""

    by_index: Mapping[int, tuple[str, int]]
    by_instant: Mapping[str, tuple[str, int]]


def _places(blocks: Sequence[LogBlock], covers: Mapping[str, set[str]]) -> _Places:
    """The requested time and the index of each ordinary block; a time never goes back along the slice."""
    by_index: dict[int, tuple[str, int]] = {}
    by_instant: dict[str, tuple[str, int]] = {}
    reached = ""
    for index, block in enumerate(blocks):
        if block.requested_time not in covers:
            reached = max(reached, comparable(block.requested_time))
            by_index[index] = by_instant[block.requested_time] = (reached, index)
    return _Places(by_index, by_instant)


def _covers(blocks: Sequence[LogBlock]) -> dict[str, set[str]]:
    """Per log-compaction instant, all instants it stands for; a compaction of compactions inherits theirs.

    Only the first block of a log compaction need carry the list, so it holds for all blocks of the instant.
    """
    covers: dict[str, set[str]] = {}
    for block in blocks:
        times = block.compacted_times
        if times:
            newest = max(times, key=comparable)
            if comparable(newest) >= comparable(block.requested_time):
                what = f"a log compaction at {block.requested_time} claims to cover {newest}, which is not older"
                raise CorruptTable(what, file=block.file, offset=block.offset)
            covers.setdefault(block.requested_time, set()).update(times)
    for instant in sorted(covers, key=comparable):  # an instant covers older ones only, so those are complete by now
        for time in tuple(covers[instant]):
            covers[instant] |= covers.get(time, set())
    return covers


def _originals(covers: Mapping[str, set[str]], instant: str) -> set[str]:
    """What a log compaction covers, other log compactions looked through as far as their blocks are here.

    Hudi's compactions may name others; those made here name originals alone.
    """
    return (covers[instant] - covers.keys()) or covers[instant]


def _superseded(covers: Mapping[str, set[str]]) -> set[str]:
    """Log compactions all of whose originals a later one covers: it need not name them, only what they stood for."""
    return {
        older
        for older in covers
        for newer in covers
        if comparable(newer) > comparable(older) and _originals(covers, older) <= covers[newer]
    }


def _is_in_base(originals: set[str], newest: str, places: _Places, base_instant_time: str) -> bool:
    """Whether a compaction that ran meanwhile took all covered blocks into the base file.

    The covered blocks then belong to the slice before, and the compacted one, which completed after the compaction
    began, was left in this slice alone: it holds nothing that the base file does not hold, and may hold older versions
    of it.
    """
    return comparable(newest) < comparable(base_instant_time) and not originals & places.by_instant.keys()
