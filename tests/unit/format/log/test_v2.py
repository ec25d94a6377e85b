"""The native container: three footer spellings, types, versions."""

from __future__ import annotations

import json

import pytest

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.v2 import RFC_KEYS, block_from_footer, footer_entries
from lakebed.model.files import FileGroupId, LogFile, LogKind

TIME = "20250101000000000"


def log(kind: LogKind = LogKind.LOG, *, native: bool = True, extension: str = "parquet") -> LogFile:
    name = f"f-0_1-0-1_{TIME}_1.{kind}.{extension}" if native else f".f-0_{TIME}.log.1_1-0-1"
    return LogFile(f"p/{name}", 100, FileGroupId("p", "f-0"), TIME, 1, "1-0-1", kind, native)


NAMED = {"VERSION": "2", "INSTANT_TIME": "20250101000000005", "COMPACTED_BLOCK_TIMES": "1,2", "IS_PARTIAL": "true"}
FORM_A = {"hudi.log.format.metadata": json.dumps(NAMED)}
FORM_B = {f"hudi.log.format.{key}": value for key, value in NAMED.items()}
FORM_C = {
    "hudi.log.format_version": "2",
    "hudi.log.block_type": "parquet_data",
    "hudi.log.instant_time": "20250101000000005",
    "hudi.log.compacted_block_times": "1,2",
    "hudi.log.is_partial": "true",
}


@pytest.mark.parametrize("form", [FORM_A, FORM_B, FORM_C, FORM_C | FORM_B | FORM_A])
def test_the_three_spellings_say_the_same(form: dict[str, str]) -> None:
    block = block_from_footer(form | {"parquet.avro.schema": "x", "hudi.log.format.LATER": "y"}, log())
    assert block.kind is BlockKind.PARQUET_DATA and block.version == 2
    assert dict(block.header) == {
        Header.INSTANT_TIME: "20250101000000005",
        Header.COMPACTED_BLOCK_TIMES: "1,2",
        Header.IS_PARTIAL: "true",
    }
    assert (block.offset, block.content_offset, block.content_length) == (0, 0, 100)


def test_hudis_map_goes_before_the_others() -> None:
    entries = {"hudi.log.instant_time": "3", "hudi.log.format.INSTANT_TIME": "2"}
    assert block_from_footer(entries, log()).requested_time == "2"
    entries["hudi.log.format.metadata"] = '{"INSTANT_TIME": "1"}'
    assert block_from_footer(entries, log()).requested_time == "1"


def test_a_bare_footer_takes_the_instant_from_the_name() -> None:
    for kind, expected in ((LogKind.LOG, 5), (LogKind.DELETES, 1), (LogKind.CDC, 6)):
        block = block_from_footer({}, log(kind))
        assert (int(block.kind), block.requested_time) == (expected, TIME)
    assert block_from_footer({}, log(extension="hfile")).kind is BlockKind.HFILE_DATA


@pytest.mark.parametrize("form", ["hudi.log.format.VERSION", "hudi.log.format_version"])
def test_versions(form: str) -> None:
    for fine in ("2", "1"):
        assert block_from_footer({form: fine}, log()).version == 2
    for later in ("3", "99999999999999999999"):
        with pytest.raises(UnsupportedFormat, match="Upgrade"):
            block_from_footer({form: later}, log())
    for bad in ("two", "", "-1", "²"):
        with pytest.raises(CorruptTable):
            block_from_footer({form: bad}, log())


@pytest.mark.parametrize("value", ["{", "[]", '{"INSTANT_TIME": 1}', "[" * 100_000])
def test_a_map_that_is_none(value: str) -> None:
    with pytest.raises(CorruptTable):
        block_from_footer({"hudi.log.format.metadata": value}, log())


def test_types_of_files_with_version_1_names() -> None:
    for word, kind in (("parquet_data", 5), ("delete", 1), ("command", 0), ("cdc", 6)):
        assert block_from_footer({"hudi.log.block_type": word}, log(native=False)).kind == kind
    with pytest.raises(CorruptTable):
        block_from_footer({}, log(native=False))
    with pytest.raises(UnsupportedFormat):
        block_from_footer({"hudi.log.block_type": "lance_data"}, log(native=False))


def test_name_and_footer_must_agree() -> None:
    with pytest.raises(CorruptTable):
        block_from_footer({"hudi.log.block_type": "delete"}, log(LogKind.LOG))


@pytest.mark.parametrize("kind", [BlockKind.PARQUET_DATA, BlockKind.DELETE, BlockKind.CDC_DATA, BlockKind.COMMAND])
def test_what_is_written_is_read_from_either_half(kind: BlockKind) -> None:
    header = {Header.INSTANT_TIME: "5", Header.SCHEMA: '{"é": 1}', Header.RECORD_POSITIONS: "AAAAAA=="}
    if kind is BlockKind.COMMAND:
        header |= {Header.COMMAND_BLOCK_TYPE: "0", Header.TARGET_INSTANT_TIME: "4"}
    entries = footer_entries(kind, header)
    assert json.loads(entries["hudi.log.format.metadata"])["VERSION"] == "2"
    both = block_from_footer(entries, log(native=False))
    assert both.kind is kind and dict(both.header) == header
    rfc = {key: value for key, value in entries.items() if key != "hudi.log.format.metadata"}
    assert dict(block_from_footer(rfc, log(native=False)).header) == {k: v for k, v in header.items() if k in RFC_KEYS}


def test_what_cannot_be_written() -> None:
    with pytest.raises(InvalidRequest):
        footer_entries(BlockKind.AVRO_DATA, {Header.INSTANT_TIME: "1"})
    with pytest.raises(InvalidRequest):
        footer_entries(BlockKind.PARQUET_DATA, {})
