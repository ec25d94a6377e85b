"""A table as a dictionary: what every write operation means, in the plainest Python there is.

A batch is folded by itself first (what it says of one key becomes one version), then against what the table holds. By
event time the greater ordering value wins, the later version of equals; a delete without an ordering value beats what
was there, and whatever comes after it stands again. Rows remember the write that made them the current version, which
is all that time travel and incremental queries need.
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
    row: Row
    commit: int


@dataclass
class Model:
    """The rows of a table after each write. `key_of` and `partition_of` are the table's settings."""

    key_of: Callable[[Row], tuple[Any, ...]]
    partition_of: Callable[[Row], str]
    by_event_time: bool
    is_global: bool = False
    rows: dict[Place, Version] = field(default_factory=dict)
    snapshots: list[dict[Place, Version]] = field(default_factory=list)

    # ------------------------------------------------------------------ operations
    def upsert(self, batch: Iterable[Row]) -> None:
        for row, forced in self._folded(batch):
            place = self._place(row)
            there = self._known(row)
            old = self.rows.get(there) if there is not None else None
            if old is not None and not forced and self.by_event_time and row["ts"] < old.row["ts"]:
                continue
            if there is not None:
                self.rows.pop(there, None)
            if not row.get(IS_DELETED):
                self.rows[place] = Version(row, self.commit)
        self._done()

    def delete(self, matches: Callable[[Row], bool]) -> None:
        self.rows = {place: version for place, version in self.rows.items() if not matches(version.row)}
        self._done()

    def update(self, change: Callable[[Row], Row], matches: Callable[[Row], bool]) -> None:
        for place, version in list(self.rows.items()):
            if matches(version.row):
                self.rows[place] = Version(change(version.row), self.commit)
        self._done()

    def overwrite(self, batch: list[Row]) -> None:
        self.rows = {}
        self.upsert(batch)

    def overwrite_partitions(self, batch: list[Row]) -> None:
        gone = {self.partition_of(row) for row in batch}
        self.rows = {place: version for place, version in self.rows.items() if place[0] not in gone}
        self.upsert(batch)

    def delete_partitions(self, paths: Iterable[str]) -> None:
        gone = set(paths)
        self.rows = {place: version for place, version in self.rows.items() if place[0] not in gone}
        self._done()

    # ------------------------------------------------------------------ questions
    @property
    def commit(self) -> int:
        """The number of the write under way."""
        return len(self.snapshots)

    def changed_after(self, commit: int) -> dict[Place, Version]:
        """The rows whose current version came with a later write than that."""
        return {place: version for place, version in self.rows.items() if version.commit > commit}

    # ------------------------------------------------------------------ pieces
    def _done(self) -> None:
        self.snapshots.append(dict(self.rows))

    def _place(self, row: Row) -> Place:
        return (self.partition_of(row), self.key_of(row))

    def _identity(self, row: Row) -> Any:
        return self.key_of(row) if self.is_global else self._place(row)

    def _known(self, row: Row) -> Place | None:
        if not self.is_global:
            place = self._place(row)
            return place if place in self.rows else None
        return next((place for place in self.rows if place[1] == self.key_of(row)), None)

    def _folded(self, batch: Iterable[Row]) -> list[tuple[Row, bool]]:
        """One version per key, and whether it stands whatever the table holds."""
        found: dict[Any, tuple[Row, bool]] = {}
        for row in batch:
            identity = self._identity(row)
            unordered = bool(row.get(IS_DELETED)) and row["ts"] is None
            known = found.get(identity)
            if known is None or unordered or not self.by_event_time:
                found[identity] = (row, unordered)
            elif known[0]["ts"] is None or row["ts"] >= known[0]["ts"]:
                found[identity] = (row, known[1])
        return list(found.values())
