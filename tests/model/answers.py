"""What must hold after each step: every answer is exact, or refused where its past is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.datafile.sorted_check import check_sorted_file
from lakebed.errors import InvalidRequest
from lakebed.model.record_key import key_generator_of
from lakebed.model.schema import COMMIT_TIME, META_FIELD_NAMES
from lakebed.runner import LocalRunner
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from tests.model.upkeep import Upkeep
from tests.model.versions import Row, Rows
from tests.model.writes import FIXED

QUESTIONS = frozenset({"latest", "as_of", "incremental"})
ASKED = 1
ASKED_AT_THE_END = 12


def check_answers(work: Upkeep, asked: int = ASKED, questions: frozenset[str] = QUESTIONS) -> None:
    """The latest rows; some states as of a write, some ranges between two, new and old ones."""
    table, count = lakebed.open(work.url), len(work.instants)
    table._runner = LocalRunner(threads=work.asks.choice([1, 1, 1, 2]))
    asked = 1 if work.kind.size == "large" else asked
    _same(work, table.scan(memory=work.asks.choice(work.memories)).to_arrow(), work.model.rows, count - 1, "latest")
    for number in _some(work, count, asked) if "as_of" in questions else ():
        _exact_or_refused(
            work,
            lambda number=number: table.scan(as_of=work.instants[number], memory=work.asks.choice(work.memories)),
            work.model.snapshots[number],
            number,
            f"as of {work.instants[number]} (write {number})",
        )
    if not work.kind.meta_fields or "incremental" not in questions:
        return
    for after in _some(work, count, asked):
        until = work.asks.randrange(after, count)
        _exact_or_refused(
            work,
            lambda after=after, until=until: table.incremental(
                work.completions[after], work.completions[until], memory=work.asks.choice(work.memories)
            ),
            work.model.changed(after, until),
            until,
            f"changes of writes {after} to {until}",
        )
        changed = work.model.changed(after, count - 1)
        found = table.incremental(work.completions[after], memory=work.asks.choice(work.memories)).to_arrow()
        _same(work, found, changed, count - 1, f"changes since write {after}")


def _some(work: Upkeep, count: int, asked: int) -> list[int]:
    """Writes by chance; the first and the last are among them as often as all others."""
    if count <= asked:
        return list(range(count))
    if work.asks.random() < 0.5:
        return [work.asks.choice([0, count - 1]), *work.asks.sample(range(count), asked - 1)]
    return work.asks.sample(range(count), asked)


def _exact_or_refused(work: Upkeep, scan: Callable[[], Any], wanted: Rows, number: int, what: str) -> None:
    try:
        found = scan().to_arrow()
    except InvalidRequest as error:
        assert work.completions[number] < work.oldest, f"{what} is retained and was refused: {error}"
        return
    _same(work, found, wanted, number, what)


def _same(work: Upkeep, found: pa.Table, wanted: Rows, number: int, what: str) -> None:
    names = {column.name: column.label for column in work.shapes[number]}
    seen = [*FIXED, *names.values()]
    columns = [name for name in found.schema.names if name not in META_FIELD_NAMES]
    expected_columns = {*FIXED, *names}
    assert set(columns) == expected_columns, f"{what}: columns {sorted(columns)}, expected {sorted(expected_columns)}"
    commits = found.column(COMMIT_TIME).to_pylist() if work.kind.meta_fields else [None] * found.num_rows
    own = found.select(columns).rename_columns([names.get(name, name) for name in columns]).to_pylist()
    held: dict[Any, list[tuple[str | None, Row]]] = {}
    for commit, row in zip(commits, own, strict=True):
        held.setdefault((work.model.partition_of(row), work.model.key_of(row)), []).append((commit, row))
    expected = {
        place: [(work.instants[version.commit] if work.kind.meta_fields else None, version.row) for version in versions]
        for place, versions in wanted.items()
    }
    differences = [
        _told(place, held.get(place, []), expected.get(place, []))
        for place in held.keys() | expected.keys()
        if not _same_rows(held.get(place, []), expected.get(place, []), seen)
    ]
    assert not differences, f"{what}: {len(differences)} keys differ, e.g.\n  " + "\n  ".join(sorted(differences)[:3])


def _same_rows(found: list[tuple[str | None, Row]], wanted: list[tuple[str | None, Row]], seen: list[str]) -> bool:
    """Whether they are the same rows in any order; a row from before a column came says nothing of it."""
    if len(found) != len(wanted):
        return False
    left = list(wanted)
    for commit, row in found:
        at = next((at for at, (by, own) in enumerate(left) if by == commit and _same_row(row, own, seen)), None)
        if at is None:
            return False
        del left[at]
    return True


def _told(place: Any, found: list[tuple[str | None, Row]], wanted: list[tuple[str | None, Row]]) -> str:
    if len(found) == len(wanted) == 1:
        (by, row), (commit, other) = found[0], wanted[0]
        differing = {label: (row.get(label), other.get(label)) for label in row if row.get(label) != other.get(label)}
        return f"{place} of {by}, expected of {commit}; found and expected where they differ {differing}"[:500]
    return f"{place}: found {found}, expected {wanted}"[:1000]


def _same_row(row: Row, wanted: Row, seen: list[str]) -> bool:
    return row == wanted or all(row.get(label) == wanted.get(label) for label in seen)


def check_files(work: Upkeep, table: Table) -> None:
    """Every file of a sorted layout is what its marks say."""
    if work.kind.layout != "lsm_tree" or work.kind.columns == "repeats":
        return
    storage = open_storage(work.url)
    generator = None if work.kind.meta_fields else key_generator_of(MetaClient.open(storage).config)
    for file_slice in table.inspect.file_slices().to_pylist():
        names = [*filter(None, [file_slice["base_file"]]), *file_slice["logs"]]
        folder = f"{file_slice['partition']}/" if file_slice["partition"] else ""
        for name in names:
            assert check_sorted_file(storage, f"{folder}{name}", generator=generator) == []
