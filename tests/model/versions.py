"""A table as a dictionary per version: what every write means, in the plainest Python there is.

A batch is folded by itself first (what it says of one key becomes one version), then against what the table holds. By
event time the greater ordering value wins, the later version of equals; where a table fills, the nulls of the winner
come from the other; a delete without an ordering value beats what was there, and whatever comes after it stands again.
Rows remember the write that made them the current version, which is all that time travel and incremental queries need.

Values are kept by column label, which is for ever; the name under which a label is seen is the schema's business. A
foreign base file may hold a key several times: all of them are seen until a write has a say, which then folds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Place = tuple[str, tuple[Any, ...]]
IS_DELETED = "_hoodie_is_deleted"


@dataclass(frozen=True)
class Version:
    """One row as it stands, and the number of the write that it counts to."""

    row: Row
    commit: int


Rows = dict[Place, tuple[Version, ...]]


@dataclass
class TableModel:
    """The rows of a table after each write. `key_of` and `partition_of` are the table's settings."""

    key_of: Callable[[Row], tuple[Any, ...]]
    partition_of: Callable[[Row], str]
    merge: str
    is_global: bool = False
    rows: Rows = field(default_factory=dict)
    snapshots: list[Rows] = field(default_factory=list)

    # ------------------------------------------------------------------ operations
    def upsert(self, batch: Iterable[Row]) -> None:
        for row, forced in self._folded(batch):
            there = self._known(row)
            old = self._fold_all(self.rows.pop(there)) if there is not None else None
            new = Version(row, self.commit)
            if forced or old is None:
                kept: Version | None = None if row.get(IS_DELETED) else new
            elif row.get(IS_DELETED):
                kept = old if self.by_event_time and row["ts"] < old.row["ts"] else None
            else:
                kept = self.fold(old, new)
            if kept is not None:
                self.rows[self._place(kept.row)] = (kept,)
        self.done()

    def delete(self, matches: Callable[[Row], bool]) -> None:
        self.rows = {p: vs for p, vs in self.rows.items() if not any(matches(version.row) for version in vs)}
        self.done()

    def update(self, change: Callable[[Row], Row], matches: Callable[[Row], bool]) -> None:
        for place, versions in list(self.rows.items()):
            if any(matches(version.row) for version in versions):
                (version,) = versions
                self.rows[place] = (Version(change(version.row), self.commit),)
        self.done()

    def overwrite(self, batch: list[Row]) -> None:
        self.rows = {}
        self.upsert(batch)

    def overwrite_partitions(self, batch: list[Row]) -> None:
        self.rows = self._outside({self.partition_of(row) for row in batch})
        self.upsert(batch)

    def delete_partitions(self, paths: Iterable[str]) -> None:
        self.rows = self._outside(set(paths))
        self.done()

    def done(self) -> None:
        """The write under way is committed."""
        self.snapshots.append(dict(self.rows))

    def go_back(self, count: int) -> None:
        """Only the first `count` writes have happened."""
        del self.snapshots[count:]
        self.rows = dict(self.snapshots[-1])

    # ------------------------------------------------------------------ questions
    @property
    def commit(self) -> int:
        """The number of the write under way."""
        return len(self.snapshots)

    @property
    def by_event_time(self) -> bool:
        return self.merge.startswith("event")

    @property
    def repeats(self) -> bool:
        """Whether a key is there several times."""
        return any(len(versions) > 1 for versions in self.rows.values())

    def changed(self, after: int, until: int) -> Rows:
        """The rows as of one write whose version came with a later one than another."""
        found = {}
        for place, versions in self.snapshots[until].items():
            later = tuple(version for version in versions if version.commit > after)
            if later:
                found[place] = later
        return found

    # ------------------------------------------------------------------ merging
    def fold(self, old: Version, new: Version, *, fills: bool = True) -> Version:
        """One version of two, the older one first; within a batch whole rows compete and nothing is filled."""
        if self.merge == "custom":
            return Version({**new.row, "v": max(old.row["v"], new.row["v"])}, new.commit)
        loses = self.by_event_time and new.row["ts"] < old.row["ts"]
        winner, other = (old, new) if loses else (new, old)
        if not fills or not self.merge.endswith("fill"):
            return winner
        filled = {label: other.row.get(label) if value is None else value for label, value in winner.row.items()}
        return Version({**other.row, **filled}, winner.commit)

    def _fold_all(self, versions: tuple[Version, ...]) -> Version:
        first, *rest = versions
        for version in rest:
            first = self.fold(first, version)
        return first

    def _folded(self, batch: Iterable[Row]) -> list[tuple[Row, bool]]:
        """One version per key, and whether it stands whatever the table holds."""
        found: dict[Any, tuple[Row, bool]] = {}
        for row in batch:
            identity = self._identity(row)
            known = found.get(identity)
            deletes = bool(row.get(IS_DELETED))
            unordered = deletes and (row["ts"] is None or not self.by_event_time)
            if known is None or unordered:
                found[identity] = (row, unordered)
                continue
            before, forced = known
            if before.get(IS_DELETED) and (before["ts"] is None or not self.by_event_time):
                found[identity] = (row, True)
            elif deletes or before.get(IS_DELETED):
                found[identity] = (row, forced) if row["ts"] >= before["ts"] else known
            else:
                found[identity] = (self.fold(Version(before, 0), Version(row, 0), fills=False).row, forced)
        return list(found.values())

    # ------------------------------------------------------------------ places
    def _outside(self, gone: set[str]) -> Rows:
        return {place: versions for place, versions in self.rows.items() if place[0] not in gone}

    def _place(self, row: Row) -> Place:
        return (self.partition_of(row), self.key_of(row))

    def _identity(self, row: Row) -> Any:
        return self.key_of(row) if self.is_global else self._place(row)

    def _known(self, row: Row) -> Place | None:
        if not self.is_global:
            place = self._place(row)
            return place if place in self.rows else None
        return next((place for place in self.rows if place[1] == self.key_of(row)), None)
