"""The route by which Spark reads the rows of a slice, and why not by a faster one.

| route | when | how |
|---|---|---|
| native | base file alone | Spark's Parquet reader over the exact list of files |
| vectors | native logs, the merge picks whole records | base and logs as above, dead rows dropped by merge vectors |
| winners | other logs, the merge picks whole records | the base file as above, the logs' live rows through Python |
| python | everything else | merged by `FileGroupReader` in tasks |

The result is the same on every route; only the first three keep base rows in the JVM, where Spark's own filters and
column pruning apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakebed.merge.reader_context import ReadSplit
from lakebed.read.plan import Plan

MOST_FILES = 20_000
"""Spark plans an explicit list of files in the driver; beyond this many, lakebed's tasks open them faster."""
METADATA_COLUMN = "_metadata"


@dataclass(frozen=True, slots=True)
class SparkRoutes:
    """The route of each split, and why."""

    native: tuple[ReadSplit, ...] = ()
    vectors: tuple[ReadSplit, ...] = ()
    winners: tuple[tuple[ReadSplit, str], ...] = ()
    python: tuple[tuple[ReadSplit, str], ...] = ()

    def lines(self) -> list[str]:
        """For `explain()`."""
        return [
            *([f"{len(self.native)} slices by Spark's Parquet reader"] if self.native else []),
            *([f"{len(self.vectors)} slices by Spark's Parquet reader and merge vectors"] if self.vectors else []),
            *(
                f"{count} slices by Spark's Parquet reader and merge vectors, their logs through Python: {why}"
                for why, count in _counted(self.winners)
            ),
            *(f"{count} slices through Python: {why}" for why, count in _counted(self.python)),
        ] or ["no slices"]


def routes(plan: Plan, unreadable: str | None = None, *, case_sensitive: bool = False) -> SparkRoutes:
    """The route of every split. `unreadable` is the reason why Spark cannot open the table's files at all."""
    for_all = unreadable or _columns_in_the_way(plan, case_sensitive)
    native: list[ReadSplit] = []
    vectors: list[ReadSplit] = []
    winners: list[tuple[ReadSplit, str]] = []
    python: list[tuple[ReadSplit, str]] = []
    files = 0
    for split in plan.splits:
        why = plan.reader.why_not_native(split)
        too_many = f"more than {MOST_FILES} files" if files >= MOST_FILES else None
        if for_all or too_many:
            python.append((split, for_all or too_many or ""))
        elif why is None:
            (vectors if split.slice.log_files else native).append(split)
            files += 1 + len(split.slice.log_files)
        elif _base_is_native(plan, split):
            winners.append((split, why))
            files += 1
        else:
            python.append((split, why))
    return SparkRoutes(tuple(native), tuple(vectors), tuple(winners), tuple(python))


def _base_is_native(plan: Plan, split: ReadSplit) -> bool:
    """Whether the base file at least can be read by Spark: the merge picks whole records, and the base is Parquet."""
    base = split.slice.base_file
    return base is not None and base.extension == "parquet" and plan.reader.reader_context.rule.picks_whole_records


def _columns_in_the_way(plan: Plan, case_sensitive: bool) -> str | None:
    names = plan.reader.reader_context.schema.names
    if METADATA_COLUMN in names:
        return f"a column called {METADATA_COLUMN!r} hides Spark's own column with the file and row index"
    fold: Callable[[str], str] = str if case_sensitive else str.lower
    if len({fold(name) for name in names}) < len(names):
        return "columns whose names differ by case only"
    return None


def _counted(splits: tuple[tuple[ReadSplit, str], ...]) -> list[tuple[str, int]]:
    reasons: dict[str, int] = {}
    for _, why in splits:
        reasons[why] = reasons.get(why, 0) + 1
    return sorted(reasons.items())
