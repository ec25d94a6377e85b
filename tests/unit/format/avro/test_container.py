"""The Avro codec and the declared schemas, against the schemas and bytes in real timeline files."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import fastavro
import pytest
from fastavro.schema import to_parsing_canonical_form
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, LakebedError, UnsupportedFormat
from lakebed.format.avro.container import (
    NAMESPACE,
    SCHEMAS,
    decode_binary,
    encode_binary,
    load_schema,
    read_container,
    read_named_container,
    write_container,
)
from tests.conftest import FIXTURES, GOLDEN_NAMES


def containers() -> Iterator[tuple[str, bytes]]:
    for name in GOLDEN_NAMES:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
            for path in archive.namelist():
                if "/timeline/" in path and "/history/" not in path:
                    data = archive.read(path)
                    if data:
                        yield path, data


@cache
def one_of_each() -> dict[str, bytes]:
    """The smallest real container of each record type."""
    found: dict[str, bytes] = {}
    for path, data in containers():
        name = read_named_container(data, path).name
        if name not in found or len(data) < len(found[name]):
            found[name] = data
    return found


def bare(schema: Any) -> Any:
    """A schema with what counts for resolution: names, types and defaults, but no docs or Java hints."""
    if isinstance(schema, list):
        return [bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"doc", "avro.java.string", "aliases", "namespace"}
    if schema.get("type") in ("array", "map"):  # where real schemas carry a default that means nothing
        dropped.add("default")
    kept = {key: bare(value) for key, value in schema.items() if key not in dropped}
    if set(kept) == {"type"} and kept["type"] == "string":
        return "string"
    return kept


def test_declared_schemas_equal_those_in_real_files() -> None:
    seen: set[str] = set()
    texts: set[bytes] = set()
    for _, data in containers():
        text = fastavro.reader(io.BytesIO(data)).metadata["avro.schema"].encode()
        if text in texts:
            continue
        texts.add(text)
        theirs = json.loads(text)
        ours = SCHEMAS[theirs["name"]]
        assert to_parsing_canonical_form(ours) == to_parsing_canonical_form(theirs)
        assert bare(json.loads(json.dumps(ours).replace(f'"{NAMESPACE}.', '"'))) == bare(theirs)
        seen.add(theirs["name"])
    assert len(seen) >= 12


def test_real_containers_hold_what_fastavro_reads() -> None:
    assert len(one_of_each()) >= 12
    for name, data in one_of_each().items():
        reader = fastavro.reader(io.BytesIO(data))
        assert read_container(data, name) == next(reader)
        assert set(reader.metadata) == {"avro.schema"}


def test_written_containers_are_read_by_fastavro() -> None:
    for name, data in one_of_each().items():
        record = read_container(data, name)
        written = write_container(name, record)
        reader = fastavro.reader(io.BytesIO(written))
        assert set(reader.metadata) == {"avro.schema"}
        assert list(reader) == [record]
        assert written == write_container(name, record)


def test_every_declared_schema_is_valid_and_takes_bytes() -> None:
    for name, schema in SCHEMAS.items():
        assert load_schema(json.dumps(schema), name)["name"] == f"{NAMESPACE}.{name}"


def test_a_codec_spelled_out_as_null_is_read_and_others_are_refused() -> None:
    schema = {"type": "record", "name": "HoodieIndexPlan", "fields": [{"name": "version", "type": "int"}]}
    for codec in ("null", "deflate"):
        stream = io.BytesIO()
        fastavro.writer(stream, schema, [{"version": 1}], codec=codec)
        if codec == "null":
            assert read_named_container(stream.getvalue(), "f") == ("HoodieIndexPlan", {"version": 1})
        else:
            with pytest.raises(UnsupportedFormat):
                read_container(stream.getvalue(), "f")


@pytest.mark.parametrize("count", [0, 2])
def test_a_timeline_file_holds_one_record(count: int) -> None:
    stream = io.BytesIO()
    fastavro.writer(
        stream, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, [{"a": 1}] * count
    )
    with pytest.raises(CorruptTable):
        read_container(stream.getvalue(), "f")


def test_every_truncation_is_found_and_says_where() -> None:
    data = one_of_each()["HoodieRollbackPlan"]
    for end in range(len(data)):
        with pytest.raises(CorruptTable) as caught:
            read_container(data[:end], "the-file")
        assert caught.value.file == "the-file"
        assert "the-file" in str(caught.value)


def test_bytes_after_the_end_are_found() -> None:
    with pytest.raises(CorruptTable):
        read_container(one_of_each()["HoodieRollbackPlan"] + b"\x00", "f")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]},
        {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
        {"type": "record", "name": "R", "fields": [{"name": "r", "type": {"type": "map", "values": "R"}}]},
        {"type": "nonsense"},
        {"type": "record"},
        "R",
        7,
    ],
)
def test_schemas_that_could_loop_for_ever_are_refused(schema: Any) -> None:
    with pytest.raises(CorruptTable):
        load_schema(json.dumps(schema), "f")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"type":' * 5000 + '"int"' + "}" * 5000, "\udce4"])
def test_schema_texts_that_are_none(text: str) -> None:
    with pytest.raises(CorruptTable):
        load_schema(text, "f")


def test_wrappers_keep_their_type() -> None:
    """IntWrapper 0 means "no ordering value" where LongWrapper 0 is a value: the branch must survive."""
    for wrapper in ("IntWrapper", "LongWrapper", "DateWrapper"):
        ordering = (f"{NAMESPACE}.{wrapper}", {"value": 0})
        record = {"recordKey": "k", "partitionPath": "p", "orderingVal": ordering}
        data = encode_binary("HoodieDeleteRecordList", {"deleteRecordList": [record]})
        assert decode_binary("HoodieDeleteRecordList", data, "f") == {"deleteRecordList": [record]}


def test_a_metadata_record_by_hand() -> None:
    record = {"key": "", "type": 2, "filesystemMetadata": {"f.parquet": {"size": 7, "isDeleted": False}}}
    data = encode_binary("HoodieMetadataRecord", record)
    assert data == b"\x00\x04\x02\x02\x12f.parquet\x0e\x00\x00\x00\x00\x00\x00"
    assert decode_binary("HoodieMetadataRecord", data, "f")["filesystemMetadata"] == record["filesystemMetadata"]


def test_errors_of_values_say_where_in_the_file() -> None:
    with pytest.raises(CorruptTable) as caught:
        decode_binary("HoodieInstantInfo", b"\x02a\x7f", "f", 100)
    assert caught.value.offset is not None
    assert 100 <= caught.value.offset <= 103
    with pytest.raises(CorruptTable) as caught:
        decode_binary("HoodieInstantInfo", b"\x02a\x02b!", "f", 100)
    assert caught.value.offset == 104


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_containers_give_our_error_or_a_record(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(one_of_each())))
    content = bytearray(one_of_each()[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        record = read_container(bytes(content), "f")
    except LakebedError:
        return
    assert isinstance(record, dict)


@settings(deadline=None)
@given(st.sampled_from(sorted(SCHEMAS)), st.binary(max_size=80))
@example("HoodieDeleteRecordList", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
@example("HoodieDeleteRecordList", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example("StringWrapper", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example("BytesWrapper", b"\x01")
@example("BytesWrapper", b"\x03abc")
def test_random_values_give_our_error_or_round_trip(name: str, data: bytes) -> None:
    try:
        value = decode_binary(name, data, "f")
    except LakebedError:
        return
    assert repr(decode_binary(name, encode_binary(name, value), "f")) == repr(value)
