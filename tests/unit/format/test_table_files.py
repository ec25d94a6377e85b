"""Properties, checksum, index definitions and partition metafiles, against real files."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, LakebedError
from lakebed.format.table_files import (
    CHECKSUM_KEY,
    IndexDefinition,
    PartitionMetafile,
    parse_index_definitions,
    parse_partition_metafile,
    parse_properties,
    render_index_definitions,
    render_partition_metafile,
    render_properties,
    table_checksum,
    verify_checksum,
)
from tests.conftest import FIXTURES, GOLDEN_NAMES, expected


def golden_files(ending: str) -> Iterator[tuple[str, bytes]]:
    for name in GOLDEN_NAMES:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
            for path in archive.namelist():
                if path.endswith(ending):
                    yield path, archive.read(path)


def test_properties_equal_what_hudi_read_back() -> None:
    checked = 0
    for path, data in golden_files("hoodie.properties"):
        name = path.split("/")[0]
        if path == f"{name}/.hoodie/hoodie.properties" and "properties" in expected(name):
            ours, theirs = parse_properties(data, path), dict(expected(name)["properties"])
            for properties in (ours, theirs):  # noted there with its escapes
                properties.pop("hoodie.table.create.schema", None)
            assert ours == theirs
            checked += 1
    assert checked > 50


def test_checksums_of_data_and_metadata_tables() -> None:
    count = 0
    for path, data in golden_files("hoodie.properties"):
        properties = parse_properties(data, path)
        assert table_checksum(properties) == int(properties[CHECKSUM_KEY])
        verify_checksum(properties, path)
        count += 1
    assert count > 100


def test_a_wrong_checksum_is_refused_and_a_missing_one_is_not() -> None:
    properties = {"hoodie.table.name": "t", CHECKSUM_KEY: "1"}
    with pytest.raises(CorruptTable) as caught:
        verify_checksum(properties, ".hoodie/hoodie.properties")
    assert caught.value.file == ".hoodie/hoodie.properties"
    for bad in ("", "-1", "1٢", "9" * 5000):
        with pytest.raises(CorruptTable):
            verify_checksum({**properties, CHECKSUM_KEY: bad}, "f")
    verify_checksum({"hoodie.table.name": "t"}, "f")


def test_escaped_json_is_unescaped() -> None:
    found = 0
    for path, data in golden_files(".hoodie/hoodie.properties"):
        schema = parse_properties(data, path).get("hoodie.table.create.schema")
        if schema is not None:
            assert json.loads(schema)["type"] == "record"
            assert b"\\:" in data
            found += 1
    assert found > 0


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b ", {"a": "b "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a = b = c", {"a": "b = c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=x\\:y\\=z\\#\\!\\\\", {"a": "x:y=z#!\\"}),
        ("a=one\\\n   two", {"a": "onetwo"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=one\\\r\n\ttwo\rb=2", {"a": "onetwo", "b": "2"}),
        ("a=one\\\n#two", {"a": "one#two"}),
        ("#c=1\n!d=2\n\n  # e\na=1", {"a": "1"}),
        ("a=\\u00e9\\ud83d\\ude00\\t", {"a": "é😀\t"}),
        ("a=é", {"a": "é"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\z", {"a": "z"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_java_properties_grammar(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text.encode(), "f") == pairs


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uZZZZ", "a=\\ud83d"])
def test_malformed_escapes_are_refused(text: str) -> None:
    with pytest.raises(CorruptTable):
        parse_properties(text.encode(), "f")


def test_rendering_matches_how_hudi_escapes() -> None:
    """A value line of a real file, JSON and all, is rendered to the same bytes."""
    lines = 0
    for path, data in golden_files("hoodie.properties"):
        ours = render_properties(parse_properties(data, path)).decode().splitlines()
        theirs = sorted(line for line in data.decode().splitlines() if not line.startswith("#"))
        assert sorted(ours) == theirs
        lines += len(ours)
    assert lines > 2000


def test_comments_are_lines_of_their_own() -> None:
    data = render_properties({"b": "2", "a": "1"}, ("Updated at 2026-11-15", "two\nlines"))
    assert data == b"#Updated at 2026-11-15\n#two\n#lines\na=1\nb=2\n"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_any_properties_survive(pairs: dict[str, str]) -> None:
    assert parse_properties(render_properties(pairs, ("c",)), "f") == pairs


@given(st.binary(max_size=200))
def test_any_bytes_give_text_or_our_error(data: bytes) -> None:
    try:
        parsed = parse_properties(data, "f")
    except LakebedError:
        return
    assert parse_properties(render_properties(parsed), "f") == parsed


def test_partition_metafiles_know_their_depth() -> None:
    checked = 0
    for path, data in golden_files("/.hoodie_partition_metadata"):
        metafile = parse_partition_metafile(data, path)
        if "/.hoodie/.metadata_" in path:  # a partition of the metadata table that a restore set aside
            continue
        below = path.partition("/.hoodie/metadata/")[2] if "/.hoodie/metadata/" in path else path.partition("/")[2]
        assert metafile.depth == below.count("/")
        assert len(metafile.commit_time) == 17
        assert parse_partition_metafile(render_partition_metafile(metafile), path) == metafile
        checked += 1
    assert checked > 100


@pytest.mark.parametrize("text", ["", "commitTime=1", "commitTime=1\npartitionDepth=x", "partitionDepth=1"])
def test_partition_metafiles_without_both_values(text: str) -> None:
    with pytest.raises(CorruptTable):
        parse_partition_metafile(text.encode(), "f")
    assert parse_partition_metafile(b"commitTime=001\npartitionDepth=2", "f") == PartitionMetafile("001", 2)


def test_index_definitions() -> None:
    by_table: dict[str, dict[str, IndexDefinition]] = {}
    for path, data in golden_files("index.json"):
        definitions = parse_index_definitions(data, path)
        assert json.loads(render_index_definitions(definitions)) == json.loads(data)
        by_table[path.split("/")[0]] = definitions
    assert len(by_table) >= 50
    stats = by_table["mdt_all_v9"]["column_stats"]
    assert stats.type == "column_stats"
    assert stats.version == "V2"
    assert {"_hoodie_commit_time", "_hoodie_record_key"} <= set(stats.source_fields)
    expression = next(one for one in by_table["mdt_expr_v9"].values() if one.name.startswith("expr_index_"))
    assert expression.options["expr"] == expression.function


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"indexDefinitions": []}',
        '{"indexDefinitions": {"a": 1}}',
        '{"indexDefinitions": {"a": {"sourceFields": 1}}}',
        '{"indexDefinitions": {"a": {"sourceFields": [1]}}}',
        '{"indexDefinitions": {"a": {"indexType": 1}}}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_malformed_index_definitions(text: str) -> None:
    with pytest.raises(CorruptTable):
        parse_index_definitions(text.encode("latin-1"), "f")
    assert parse_index_definitions(b"", "f") == {}


@settings(max_examples=200)
@given(st.data())
def test_damaged_index_definitions(data: st.DataObject) -> None:
    content = bytearray(
        b'{"indexDefinitions": {"a": {"indexName": "a", "sourceFields": ["x"], "indexOptions": {"k": "v"}}}}'
    )
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LakebedError):
        parse_index_definitions(bytes(content), "f")
