"""Data on a terminal: nothing in it is obeyed, neither by the terminal nor as markup."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from rich.text import Text

import lakebed
from lakebed.cli.main import main
from lakebed.cli.output import cell
from lakebed.cli.terminal_text import harmless, harmless_cell, harmless_json

ODD = ["\x1b[31mred", "\x9b31m", "a\rb", "a\bb", "\x07", "\u202egnp.exe", "a\nb", "a\tb", "\ufeff", "\x7f", "\x00"]
MARKUP = ["[red]x[/red]", "[/]", "\\[red]", "\\\\[bold]x", "[link=http://x]y[/link]", "trailing\\", "[@click=f()]x"]


def steers(text: str) -> list[str]:
    """The characters of a text that a terminal obeys, line ends aside."""
    return [
        letter
        for letter in text
        if (unicodedata.category(letter) == "Cc" and letter != "\n") or letter in "\u202e\ufeff"
    ]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    schema = pa.schema([("id", pa.string()), ("v", pa.string()), ("tags", pa.list_(pa.string()))])
    made = lakebed.create(tmp_path / "t", schema, record_key="id", num_buckets=1)
    values = [*ODD, *MARKUP]
    made.upsert(pa.table({"id": [f"{at:02}" for at in range(len(values))], "v": values, "tags": [[v] for v in values]}))
    return tmp_path / "t"


def run(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["lakebed", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("options", [("--limit", "99"), ("--json",), ("--explain",)])
def test_the_terminal_gets_no_escape_from_data(
    table: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("read", table, *options, monkeypatch=monkeypatch) == 0
    told = capsys.readouterr()
    assert not steers(told.out) and not steers(told.err)
    if options == ("--json",):
        assert [row["v"] for row in json.loads(told.out)] == [*ODD, *MARKUP], "what programs get is the value"
    if "--limit" in options:
        assert r"\x1b[31mred" in told.out and r"\u202egnp.exe" in told.out and r"a\nb" in told.out
        assert all(value in told.out for value in MARKUP), "markup is text like other text"


@pytest.mark.parametrize("name", ["\x1b[31m", "[red]", "\\[red]"])
def test_errors_with_data_in_them_are_harmless_and_whole(
    name: str, table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("read", table, "--columns", name, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert not steers(told)
    assert repr(name) in told


def test_names_of_columns_and_files_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "[red]t[bold]"
    made = lakebed.create(root, pa.schema([("id", pa.string())]), record_key="id", num_buckets=1)
    made.upsert(pa.table({"id": ["1"]}))
    file = tmp_path / "[red]x\x1b.json"
    assert run("read", root, "-o", file, monkeypatch=monkeypatch) == 0
    assert run("show", root, monkeypatch=monkeypatch) == 0
    told = capsys.readouterr().out
    assert not steers(told) and r"[red]x\x1b.json" in told and "[red]t[bold]" in told


@pytest.mark.parametrize("value", [*ODD, *MARKUP])
def test_a_cell_is_plain_text_of_one_line(value: str) -> None:
    shown = cell(value)
    assert isinstance(shown, Text) and not shown.spans
    assert not steers(shown.plain) and "\n" not in shown.plain
    assert shown.plain == value or value in ODD


def test_line_ends_of_messages_stay() -> None:
    assert harmless("a\n\tb\x1b") == "a\n\tb\\x1b"
    assert harmless_cell("a\n\tb") == "a\\n\\tb"
    text = json.dumps({"v": "\x1b\x9b\u202e\x7f é 😀"}, ensure_ascii=False)
    assert json.loads(harmless_json(text)) == json.loads(text) and not steers(harmless_json(text))
    assert harmless("é 日本 😀 👩\u200d👩") == "é 日本 😀 👩\u200d👩"
