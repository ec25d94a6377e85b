"""The kinds of tables that histories are made on: settings that go together, combined pairwise or at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

FACTORS: dict[str, tuple[Any, ...]] = {
    "index": ("bucket", "consistent_bucket", "simple", "bloom", "global_simple", "global_bloom"),
    "keys": ("string", "int", "composite", "none"),
    "logs": ("v1 9", "v1 8", "v2 10"),
    "table_type": ("mor", "cow"),
    "layout": ("lsm_tree", "default"),
    "partitioned": (True, False),
    "merge": ("commit", "event", "commit_fill", "event_fill", "custom"),
    "meta_fields": (True, False),
    "columns": ("fixed", "added", "renamed", "repeats"),
    "size": ("small", "tiny_logs", "large"),
}
_CANDIDATES = 200


@dataclass(frozen=True)
class Kind:
    """The settings of one table.

    `columns` says what happens besides plain writes: columns are *added* by writes, *renamed* (dropped, added again,
    promoted) by schema changes, or base files *repeat* keys as foreign writers leave them. `size` is that of writes:
    a few rows, many commits of one row, or batches that outgrow small buffers.
    """

    index: str = "bucket"
    keys: str = "string"
    logs: str = "v2 10"
    table_type: str = "mor"
    layout: str = "lsm_tree"
    partitioned: bool = False
    merge: str = "commit"
    meta_fields: bool = True
    columns: str = "fixed"
    size: str = "small"

    def __str__(self) -> str:
        words = [self.index, self.keys, self.logs.replace(" ", "."), self.table_type, self.layout, self.merge]
        words += [self.columns] * (self.columns != "fixed") + [self.size] * (self.size != "small")
        words += ["parts"] * self.partitioned + ["bare"] * (not self.meta_fields)
        return "-".join(words)

    @property
    def is_possible(self) -> bool:
        if self.keys == "none" and (self.is_hashed or self.merge != "commit" or self.columns == "repeats"):
            return False
        if not self.meta_fields and (self.keys == "none" or "bloom" in self.index):
            return False
        if self.merge == "custom" and (not self.meta_fields or self.is_global):
            return False
        if self.fills and self.is_global and self.partitioned:  # rows that move cannot be filled
            return False
        if self.columns == "repeats" and (self.is_global or self.index == "consistent_bucket"):
            return False
        return not (self.index == "consistent_bucket" and self.table_type == "cow")

    @property
    def is_hashed(self) -> bool:
        return "bucket" in self.index

    @property
    def is_global(self) -> bool:
        return self.index.startswith("global")

    @property
    def by_event_time(self) -> bool:
        return self.merge.startswith("event")

    @property
    def fills(self) -> bool:
        return self.merge.endswith("fill")


def any_kind(chance: random.Random, only: Mapping[str, str] | None = None) -> Kind:
    """One possible kind by chance, with these settings; what hides the rest of a history comes less often."""
    while True:
        values = {name: chance.choice(choices) for name, choices in FACTORS.items()}
        values["meta_fields"] = chance.random() < 0.85
        values["table_type"] = "mor" if chance.random() < 0.75 else "cow"
        values["size"] = chance.choices(FACTORS["size"], [5, 2, 1])[0]
        if values["keys"] == "none" and chance.random() < 0.7:
            continue
        kind = Kind(**values)
        if kind.is_possible and all(str(getattr(kind, name)) == value for name, value in (only or {}).items()):
            return kind


def pairwise(seed: int, **fixed: Any) -> list[Kind]:
    """Few kinds among which any two settings that go together meet."""
    chance = random.Random(seed)
    names = [field.name for field in fields(Kind)]
    missing = set()
    for (one, ones), (other, others) in itertools.combinations(FACTORS.items(), 2):
        for a, b in itertools.product(ones, others):
            wanted = {one: a, other: b}
            if all(wanted.get(name, value) == value for name, value in fixed.items()):
                missing.add((one, a, other, b))
    chosen: list[Kind] = []
    while missing:
        one, a, other, b = chance.choice(sorted(missing, key=repr))
        candidates = [_kind_with(chance, {one: a, other: b, **fixed}) for _ in range(_CANDIDATES)]
        possible = [kind for kind in candidates if kind.is_possible]
        if not possible:
            missing.discard((one, a, other, b))
            continue
        best = max(possible, key=lambda kind: len(missing.intersection(_pairs(kind, names))))
        missing.difference_update(_pairs(best, names))
        chosen.append(best)
    return chosen


def _kind_with(chance: random.Random, wanted: dict[str, Any]) -> Kind:
    return replace(Kind(**{name: chance.choice(choices) for name, choices in FACTORS.items()}), **wanted)


def _pairs(kind: Kind, names: list[str]) -> Iterator[tuple[str, Any, str, Any]]:
    for one, other in itertools.combinations(names, 2):
        yield one, getattr(kind, one), other, getattr(kind, other)
