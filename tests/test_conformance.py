"""`docs/conformance.md` is true: what its lines name exists, its numbers add up, and README claims no more than it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "conformance.md"
STATES = ("works", "partly", "different on purpose", "not yet")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
DECISION = re.compile(r"\[\d+\]\((decisions/\d{4}-[\w-]+\.md)\)")
ROW = re.compile(r"^\| ([A-Z]\d+) \|")
README_TABLE = "README's feature table"


@dataclass(frozen=True, slots=True)
class Line:
    """One requirement of one document."""

    document: str
    id: str
    section: str
    requirement: str
    state: str
    shown_by: str


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split(" | ")]


@cache
def lines() -> tuple[Line, ...]:
    found, document = [], ""
    for text in PAGE.read_text().splitlines():
        document = text.removeprefix("## ") if text.startswith("## ") else document
        if ROW.match(text):
            found.append(Line(document, *cells(text)))
    return tuple(found)


@cache
def functions(file: str) -> frozenset[str]:
    """The functions of a module, those inside of classes included; none when there is no such file."""
    path = ROOT / file
    nodes = ast.walk(ast.parse(path.read_text())) if path.is_file() else ()
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def table_under(heading: str, page: str) -> list[list[str]]:
    """The rows of the first table behind a heading, without its head."""
    part = page.split(f"## {heading}\n", 1)[1]
    rows = re.search(r"^\|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", part, re.MULTILINE)
    assert rows, heading
    return [cells(row) for row in rows[1].splitlines()]


def test_every_line_has_five_cells_and_a_state() -> None:
    assert len(lines()) >= 300
    assert {line.state for line in lines()} == set(STATES)
    rows = [row for row in PAGE.read_text().splitlines() if ROW.match(row)]
    assert [row for row in rows if len(cells(row)) != 5] == []


def test_no_requirement_stands_twice() -> None:
    for what in (Counter(line.id for line in lines()), Counter(line.requirement.lower() for line in lines())):
        assert [item for item, times in what.items() if times > 1] == []


def test_every_test_that_a_line_names_exists() -> None:
    named = [(line.id, file, name) for line in lines() for file, name in TEST.findall(line.shown_by)]
    assert len(named) > 300
    gone = [f"{at}: {file}::{name}" for at, file, name in named if name not in functions(file)]
    assert gone == []
    assert [f"{at}: {name}" for at, _, name in named if not name.startswith("test_")] == []


def test_every_decision_that_a_line_names_exists() -> None:
    named = [(line.id, target) for line in lines() for target in DECISION.findall(line.shown_by)]
    assert named
    assert [f"{at}: {target}" for at, target in named if not (PAGE.parent / target).is_file()] == []


@pytest.mark.parametrize("state", STATES)
def test_lines_say_what_their_state_demands(state: str) -> None:
    """Works: a test. Different on purpose: a decision. Partly: a test and the rest. Not yet: what is missing."""
    wrong = []
    for line in (line for line in lines() if line.state == state):
        has = {
            "works": bool(TEST.search(line.shown_by)) and "missing:" not in line.shown_by,
            "different on purpose": bool(DECISION.search(line.shown_by)) and "missing:" not in line.shown_by,
            "partly": bool(TEST.search(line.shown_by)) and "missing:" in line.shown_by,
            "not yet": re.fullmatch(r"missing: \S+( \S+){0,3}", line.shown_by) is not None,
        }
        if not has[state]:
            wrong.append(f"{line.id}: {line.shown_by}")
    assert wrong == []


def test_the_summary_counts_the_lines() -> None:
    documents = list(dict.fromkeys(line.document for line in lines()))
    counted = {name: [sum(one.state == state for one in lines() if one.document == name) for state in STATES]
               for name in documents}  # fmt: skip
    wanted = [[name, *map(str, counted[name]), str(sum(counted[name]))] for name in documents]
    totals = [sum(column) for column in zip(*counted.values(), strict=True)]
    wanted.append(["all", *map(str, totals), str(sum(totals))])
    page = "## Conformance\n" + PAGE.read_text()
    found = [[re.sub(r"\[(.*)\]\(.*\)", r"\1", first), *rest] for first, *rest in table_under("Conformance", page)]
    assert found == wanted, "the summary should be\n" + "\n".join(f"| {' | '.join(row)} |" for row in wanted)


def test_readme_claims_what_the_lines_say() -> None:
    """A changed claim of README has to be judged against the lines, and written down under its new words."""
    part = (ROOT / "README.md").read_text().split("## What works\n", 1)[1]
    claims = {name: text for name, text in table_under("What works", f"## What works\n{part}") if name}
    missing = re.search(r"^Not there yet: .*?(?=\n\n)", part, re.MULTILINE | re.DOTALL)
    if missing:
        claims["missing"] = missing[0].replace("\n", " ")
    judged = {name: (text, ids.split(", ")) for name, text, ids in table_under(README_TABLE, PAGE.read_text())}
    assert {name: text for name, (text, _) in judged.items()} == claims
    state_of = {line.id: line.state for line in lines()}
    for name, (_, ids) in judged.items():
        allowed = {"partly", "not yet"} if name == "missing" else {"works", "different on purpose"}
        assert {at: state_of.get(at) for at in ids if state_of.get(at) not in allowed} == {}, name
