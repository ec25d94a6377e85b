"""Where other readers answer differently, each with its reason. Nothing is skipped because of this list (but
for a question that ends Hudi's JVM): a listed difference is predicted and checked, and one that no longer shows fails
its test, so that the list can only shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from .kinds import Kind
from .model import Cell, Model
from .rows import PARTITION_PATH, Answer
from .written_model import Place, Version, WrittenModel

# -- real Hudi


@dataclass(frozen=True, slots=True)
class ListedDifference:
    """A key on which Hudi's answer may differ from ours. `applies(model, cell, after)`; `after` is 0 for a snapshot."""

    name: str
    reason: str
    applies: Callable[[Model, Cell, int], bool]


def _older_reinsert(model: Model, cell: Cell, after: int) -> bool:
    """On merge-on-read by event time: a delete by key, then a version that orders below one from before the delete."""
    if not (model.shape.is_mor and model.shape.event_time):
        return False
    kept = [version for version in (cell.base, *cell.log) if version is not None and version.write > after]
    for place, version in enumerate(kept):
        if version.is_delete and version.ordering is None:
            before = [v.ordering for v in kept[:place] if v.ordering is not None]
            later = [v.ordering for v in kept[place + 1 :] if v.ordering is not None]
            if before and later and max(before) > min(later):
                return True
    return False


def _lost_but_recent(model: Model, cell: Cell, after: int) -> bool:
    """On merge-on-read by event time: a version inside the range that lost against one before the range."""
    if not (model.shape.is_mor and model.shape.event_time):
        return False
    standing = model.fold_up(cell)
    recent = any(version.write > after for version in cell.log)
    return after > 0 and recent and standing is not None and standing.write <= after


def _log_compacted(model: Model, cell: Cell, after: int) -> bool:
    """A version that a log compaction inside the range took from before it."""
    return after > 0 and any(0 < version.covers <= after < version.write for version in cell.log)


def _filled_otherwise(model: Model, cell: Cell, after: int) -> bool:
    """Nulls are filled, and there is a delete or a late row among the logs, or a version outside the range."""
    if not (model.shape.is_mor and model.shape.fills and cell.log):
        return False
    versions = [version for version in (cell.base, *cell.log) if version is not None]
    orderings = [version.ordering for version in versions if version.ordering is not None]
    late = model.shape.event_time and orderings != sorted(orderings)
    return late or any(version.is_delete or version.write <= after for version in versions)


LISTED_DIFFERENCES = (
    ListedDifference(
        "older re-insert after a delete",
        "Merge-on-read answers are what copy-on-write would hold. Hudi folds the logs first: the delete meets the "
        "re-insert there and disappears, and the deleted base row, having the greater ordering value, comes back.",
        _older_reinsert,
    ),
    ListedDifference(
        "late row in an incremental answer",
        "An incremental answer is the merged state at the end of the range. Hudi drops versions outside the range "
        "before it merges, so on merge-on-read a row that came late and lost shows up.",
        _lost_but_recent,
    ),
    ListedDifference(
        "log-compacted row in an incremental answer",
        "Hudi's log compaction writes its own instant into the rows, and its incremental queries judge the compacted "
        "block by the instants it covers. We go by the commit time in the row, so we repeat rows from before it.",
        _log_compacted,
    ),
    ListedDifference(
        "nulls filled in another order",
        "Where a winner's nulls are filled from the loser, the order of folding shows: after a delete Hudi's "
        "merge-on-read fills from the deleted base row, and a late row in the logs fills before the base row does. "
        "Copy-on-write, Hudi's included, fills from the row that stood there.",
        _filled_otherwise,
    ),
)


def listed(model: Model, cell: Cell, after: int = 0) -> ListedDifference | None:
    """The difference that explains a key, if one does."""
    return next((difference for difference in LISTED_DIFFERENCES if difference.applies(model, cell, after)), None)


# -- hudi-rs 0.5 on the golden tables


@dataclass(frozen=True, slots=True)
class HudiRsLimit:
    """What hudi-rs does with a golden table instead of answering like us: an error, or rows, that mention `shows`."""

    shows: str
    reason: str


_LOG_ONLY = HudiRsLimit("0 read", "file groups that have only log files give no rows")
_SEVERAL_ORDERING = HudiRsLimit("Multiple ordering fields", "several ordering fields are not supported")
_ORC = HudiRsLimit("'ORC' is not supported", "ORC base files are not supported")
_NESTED = HudiRsLimit("has type Struct", "nested schema evolution is not supported")
_UNAVAILABLE = HudiRsLimit("__debezium_unavailable_value", "markers of unavailable values are not filled")

HUDI_RS_LIMITS: Mapping[str, HudiRsLimit] = {
    "mor_consistent_v9": _LOG_ONLY,
    "mor_nbcc_v9": _LOG_ONLY,
    "mor_nbcc_committime_v9": _LOG_ONLY,
    "cow_multi_ordering_v9": _SEVERAL_ORDERING,
    "mor_debezium_mysql_v9": _SEVERAL_ORDERING,
    "mor_multi_ordering_v9": _SEVERAL_ORDERING,
    "mor_debezium_pg_v9": _UNAVAILABLE,
    "mor_nested_evo_avro_v9": _NESTED,
    "mor_nested_evo_parquet_v9": _NESTED,
    "mor_nondefaults_v8": HudiRsLimit("CUSTOM record merge mode", "payload classes of version 8 are not known"),
    "mor_partialpayload_v9": HudiRsLimit(
        "'txt': (", "like real Hudi it fills a winner's nulls from late log rows before it looks at the base row"
    ),
    "mor_schema_evo_v9": HudiRsLimit("'label'", "columns renamed by schema on read are null in older files"),
    "orc_cow_v9": _ORC,
    "orc_mor_v8": _ORC,
    "orc_mor_v9": _ORC,
}


# -- tables that lakebed and Hudi write in turns


FILLED = "partial row filled from a late one"
"""Hudi folds the logs first: a late row that meets a partial one there loses, and fills its other columns anyway."""


def written_difference(model: WrittenModel, place: Place, after: int = 0) -> str:
    """Why real Hudi may show another version of a key than lakebed, or of the changes since a write; mostly empty."""
    if not (model.kind.is_mor and model.kind.by_event_time):
        return ""
    story = model.story[place]
    for at, version in enumerate(story):
        if version.row is None and version.ordering is None:
            before = [v.ordering for v in story[:at] if v.ordering is not None]
            later = [v.ordering for v in story[at + 1 :] if v.ordering is not None]
            if before and later and max(before) > min(later):
                return "older re-insert after a delete"
    if any(version.partial for version in story) and any(_came_late(story, at) for at in range(1, len(story))):
        return FILLED
    standing = model.rows.get(place)
    if after and standing is not None and standing.write <= after and any(v.write > after for v in story):
        return "late row in an incremental answer"
    return ""


def _came_late(story: Sequence[Version], at: int) -> bool:
    ordering = story[at].ordering
    return ordering is not None and any(v.ordering is not None and v.ordering > ordering for v in story[:at])


def partial_rows_alone(model: WrittenModel, after: int) -> bool:
    """Whether changes since a write include partial rows without the versions below them.

    Hudi drops versions outside the range before it merges, takes what is left of such a row for a whole one, and reads
    its columns at the wrong places: it fails, partial rows of its own included, and may take its JVM with it. So this
    is the one question that real Hudi is not asked.
    """
    recent = ([version for version in story if version.write > after] for story in model.story.values())
    return any(versions and any(v.partial for v in versions) and not _begins_whole(versions) for versions in recent)


def _begins_whole(versions: Sequence[Version]) -> bool:
    return versions[0].row is not None and not versions[0].partial


def keys_that_stay_deleted(model: WrittenModel) -> set[str]:
    """Keys that workloads leave alone until a compaction: where a slice has partial rows, Hudi cannot merge a delete in
    its logs with a row of the same key that comes later. It looks for the schema of the delete, which has none.
    """
    if model.kind.has_marks or not model.kind.is_mor:
        return set()
    return {place[1] for place, story in model.story.items() if any(version.row is None for version in story)}


def hudi_rs_limit(model: WrittenModel) -> HudiRsLimit | None:
    """What hudi-rs does with a kind of table instead of answering like us."""
    if model.kind.ordering == "several":
        return _SEVERAL_ORDERING
    return None


def decoded(kind: Kind, answer: Answer) -> Answer:
    """Incremental answers of real Hudi take partition values from the path and leave them url-encoded; undone here.

    A value that already is as it was written fails: then this difference is gone.
    """
    if not kind.url_encode:
        return answer
    places = [answer.columns.index(name) for name in kind.partition_fields]
    path = answer.columns.index(PARTITION_PATH)
    rows = []
    for row in answer.rows:
        segments = [segment.rpartition("=")[2] for segment in row[path].split("/")]
        found = dict(zip(places, segments, strict=True))
        assert all(row[at] == text for at, text in found.items()), f"partition values are decoded now: {row}"
        rows.append(tuple(unquote(value) if at in found else value for at, value in enumerate(row)))
    return Answer(answer.columns, answer.types, tuple(rows))
