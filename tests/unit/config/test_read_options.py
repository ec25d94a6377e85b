"""What tables say of themselves, against real properties files."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.config.merge_settings import PAYLOADS
from lakebed.config.option import warn_unknown
from lakebed.config.read_options import MergeMode, PartialUpdateMode, ReadOptions, TableConfig, TableVersion, known_keys
from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.format.table_files import parse_properties
from tests.conftest import FIXTURES, GOLDEN_NAMES

MODEL = "org.apache.hudi.common.model."
BASIC = {"hoodie.table.name": "t", "hoodie.table.version": "9", "hoodie.table.type": "MERGE_ON_READ"}
FILE = ".hoodie/hoodie.properties"


def golden_properties(metadata_table: bool = False) -> Iterator[tuple[str, dict[str, str]]]:
    inner = ".hoodie/metadata/" if metadata_table else ""
    for name in GOLDEN_NAMES:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
            path = f"{name}/{inner}{FILE}"
            if path in archive.namelist():
                yield name, parse_properties(archive.read(path), path)


def config(**more: str) -> TableConfig:
    return TableConfig.from_properties(BASIC | {key.replace("__", "."): value for key, value in more.items()}, FILE)


def test_every_golden_table_has_a_config() -> None:
    seen = dict(golden_properties())
    assert len(seen) == len(GOLDEN_NAMES)
    for name, properties in seen.items():
        table = TableConfig.from_properties(properties, name)
        assert table.table_type == ("cow" if "cow" in name else "mor") or name.startswith(("complex", "mdt"))
        assert int(table.version) == int(name.rpartition("_v")[2])
        assert table.key_fields
        assert table.ordering_fields
        assert table.properties == properties
        assert pickle.loads(pickle.dumps(table)) == table


def test_metadata_tables_have_a_config() -> None:
    seen = dict(golden_properties(metadata_table=True))
    assert len(seen) >= 50
    for name, properties in seen.items():
        table = TableConfig.from_properties(properties, name)
        assert table.base_file_format == "hfile"
        assert table.key_fields == ("key",)
        assert table.keygen_type == "HOODIE_TABLE_METADATA"
        assert table.merge_mode is MergeMode.CUSTOM
        assert not table.populate_meta_fields


def test_keys_of_real_tables_are_known() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _, properties in (*golden_properties(), *golden_properties(metadata_table=True)):
            assert warn_unknown(properties, known_keys()) == ()


@pytest.mark.parametrize(
    ("name", "mode", "ordering", "partial", "delete", "unavailable"),
    [
        ("mor_eventtime_v9", MergeMode.EVENT_TIME, ("ts",), None, (None, None), None),
        ("mor_committime_v8", MergeMode.COMMIT_TIME, ("ts",), None, (None, None), None),
        ("mor_multi_ordering_v9", MergeMode.EVENT_TIME, ("ts", "seq"), None, (None, None), None),
        ("mor_dms_v9", MergeMode.COMMIT_TIME, ("ts",), None, ("Op", "D"), None),
        ("mor_partialpayload_v9", MergeMode.EVENT_TIME, ("ts",), PartialUpdateMode.IGNORE_DEFAULTS, (None, None), None),
        (
            "mor_debezium_pg_v9",
            MergeMode.EVENT_TIME,
            ("_event_lsn",),
            PartialUpdateMode.FILL_UNAVAILABLE,
            ("_change_operation_type", "d"),
            "__debezium_unavailable_value",
        ),
        (
            "mor_debezium_mysql_v9",
            MergeMode.EVENT_TIME,
            ("_event_bin_file", "_event_pos"),
            None,
            ("_change_operation_type", "d"),
            None,
        ),
    ],
)
def test_merge_settings_of_real_tables(
    name: str,
    mode: MergeMode,
    ordering: tuple[str, ...],
    partial: PartialUpdateMode | None,
    delete: tuple[str | None, str | None],
    unavailable: str | None,
) -> None:
    table = TableConfig.from_properties(dict(golden_properties())[name], name)
    assert table.merge_mode is mode
    assert table.ordering_fields == ordering
    assert table.partial_update_mode is partial
    assert (table.delete_field, table.delete_marker) == delete
    assert table.unavailable_value == unavailable


def test_what_hudi_wrote_for_a_retired_payload_is_what_the_class_alone_means() -> None:
    """Without the settings of real version 9 tables, the class must bring them back, as version 8 has it."""
    checked = 0
    for name, properties in golden_properties():
        payload = properties.get("hoodie.table.legacy.payload.class")
        if payload is None:
            continue
        theirs = TableConfig.from_properties(properties, name)
        kept = {"hoodie.table.name", "hoodie.table.type", "hoodie.table.ordering.fields"}
        old = {key: value for key, value in properties.items() if key in kept}
        old |= {"hoodie.table.version": "8", "hoodie.compaction.payload.class": payload}
        for mode in ({}, {"hoodie.record.merge.mode": "CUSTOM"}):
            ours = TableConfig.from_properties(old | mode, name)
            for setting in ("merge_mode", "ordering_fields", "partial_update_mode", "delete_field", "delete_marker"):
                assert getattr(ours, setting) == getattr(theirs, setting), (name, setting)
            assert ours.unavailable_value == theirs.unavailable_value
            assert ours.payload_class == payload
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    ("more", "mode"),
    [
        ({}, MergeMode.COMMIT_TIME),
        ({"hoodie.table.ordering.fields": "ts"}, MergeMode.EVENT_TIME),
        ({"hoodie.table.precombine.field": "ts"}, MergeMode.EVENT_TIME),
        (
            {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.table.ordering.fields": "ts"},
            MergeMode.COMMIT_TIME,
        ),
        ({"hoodie.record.merge.mode": "", "hoodie.table.ordering.fields": "ts"}, MergeMode.EVENT_TIME),
        (
            {"hoodie.compaction.payload.class": "com.example.Mine", "hoodie.table.ordering.fields": "ts"},
            MergeMode.CUSTOM,
        ),
        ({"hoodie.compaction.payload.class": MODEL + "OverwriteWithLatestAvroPayload"}, MergeMode.COMMIT_TIME),
        (
            {"hoodie.record.merge.mode": "CUSTOM", "hoodie.compaction.payload.class": "com.example.Mine"},
            MergeMode.CUSTOM,
        ),
        ({"hoodie.record.merge.strategy.id": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"}, MergeMode.EVENT_TIME),
        ({"hoodie.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d"}, MergeMode.COMMIT_TIME),
        ({"hoodie.record.merge.strategy.id": "1897ef5f-18bc-4557-939c-9d6a8afd1519"}, MergeMode.CUSTOM),
    ],
)
def test_the_merge_mode_where_it_must_be_made_out(more: dict[str, str], mode: MergeMode) -> None:
    assert TableConfig.from_properties(BASIC | more, FILE).merge_mode is mode


def test_single_merge_properties_win_over_the_class() -> None:
    more = {"hoodie.compaction.payload.class": MODEL + "AWSDmsAvroPayload", "hoodie.payload.delete.marker": "X"}
    table = TableConfig.from_properties(BASIC | more, FILE)
    assert (table.delete_field, table.delete_marker) == ("Op", "X")
    more["hoodie.record.merge.property.hoodie.payload.delete.marker"] = "Y"
    assert TableConfig.from_properties(BASIC | more, FILE).delete_marker == "Y"


def test_known_payload_classes_are_all_classes_of_hudi() -> None:
    assert len(PAYLOADS) == 8
    assert all(name.startswith(MODEL) and settings.mode is not MergeMode.CUSTOM for name, settings in PAYLOADS.items())


def test_partition_fields_of_the_custom_key_generator() -> None:
    table = config(hoodie__table__partition__fields="region:simple, ts:TIMESTAMP,plain")
    assert table.partition_fields == ("region", "ts", "plain")
    assert table.partition_types == ("SIMPLE", "TIMESTAMP", None)
    assert not config(hoodie__table__partition__fields="").is_partitioned


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({"hoodie.table.keygenerator.type": "COMPLEX_AVRO"}, "COMPLEX"),
        ({"hoodie.table.keygenerator.type": "simple"}, "SIMPLE"),
        ({"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator"}, "NON_PARTITION"),
        ({"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleAvroKeyGenerator"}, "SIMPLE"),
        ({"hoodie.table.keygenerator.class": "com.example.Mine"}, None),
        ({}, None),
    ],
)
def test_key_generator_types_in_one_spelling(properties: dict[str, str], kind: str | None) -> None:
    assert TableConfig.from_properties(BASIC | properties, FILE).keygen_type == kind


@pytest.mark.parametrize("version", ["6", "5", "0", "7", "", "eight", "11", "9" * 6000])
def test_other_versions_are_refused_with_a_way_out(version: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        TableConfig.from_properties(BASIC | {"hoodie.table.version": version}, FILE)
    assert caught.value.file == FILE
    assert caught.value.hint
    assert ("newer lakebed" in caught.value.hint) == (version == "11")


@pytest.mark.parametrize(
    "more",
    [
        {"hoodie.timeline.layout.version": "1"},
        {"hoodie.table.format": "iceberg"},
        {"hoodie.bootstrap.base.path": "s3://elsewhere"},
    ],
)
def test_tables_that_would_be_read_wrongly_are_refused(more: dict[str, str]) -> None:
    with pytest.raises(UnsupportedFormat):
        TableConfig.from_properties(BASIC | more, FILE)


@pytest.mark.parametrize(
    "more",
    [
        {"hoodie.table.name": ""},
        {"hoodie.table.type": "MERGE_ON_WRITE"},
        {"hoodie.record.merge.mode": "SOMETIMES"},
        {"hoodie.populate.meta.fields": "perhaps"},
        {"hoodie.table.storage.layout": "btree"},
        {"hoodie.table.partition.fields": ":SIMPLE"},
        {"hoodie.bucket.index.num.buckets": "four"},
    ],
)
def test_malformed_properties_are_corruption_of_the_file(more: dict[str, str]) -> None:
    with pytest.raises(CorruptTable) as caught:
        TableConfig.from_properties(BASIC | more, FILE)
    assert caught.value.file == FILE


def test_an_lsm_table_of_version_ten() -> None:
    more = {
        "hoodie.table.version": "10",
        "hoodie.table.storage.layout": "lsm_tree",
        "hoodie.bucket.index.num.buckets": "4",
    }
    table = TableConfig.from_properties(BASIC | more, FILE)
    assert table.version.has_native_logs
    assert table.is_lsm_tree
    assert table.num_buckets == 4
    assert config().layout == "default"
    assert not config().version.has_native_logs


def test_versions_answer_questions() -> None:
    assert [version for version in TableVersion if not version.readable] == [TableVersion.SIX]
    assert [version for version in TableVersion if version.has_native_logs] == [TableVersion.TEN]
    assert not TableVersion.EIGHT.has_versioned_indexes


def test_the_metadata_table_counts_only_once_its_files_partition_is_finished() -> None:
    assert config(hoodie__table__metadata__partitions="column_stats,files").has_metadata_table
    assert not config(hoodie__table__metadata__partitions="").has_metadata_table
    assert not config(hoodie__table__metadata__partitions__inflight="files").has_metadata_table


@given(st.data())
def test_damaged_values_give_our_error_or_a_config(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(key for key in known_keys() if not key.endswith("."))))
    try:
        TableConfig.from_properties(BASIC | {key: data.draw(st.text(max_size=20))}, FILE)
    except LakebedError:
        return


def test_read_options_from_keys_names_and_objects() -> None:
    assert ReadOptions() == ReadOptions(memory=512 << 20, read_buffer=10 << 20, use_metadata_table=True)
    given_keys = {"compaction_log_streaming_read_buffer": "1MB", "hoodie.metadata.enable": "false"}
    options = ReadOptions.from_properties(given_keys)
    assert options == ReadOptions(read_buffer=1 << 20, use_metadata_table=False)
    assert options.override(memory="1GB") == ReadOptions(memory=1 << 30, read_buffer=1 << 20, use_metadata_table=False)
    assert options.override(None, memory=None) is options
    assert options.override(ReadOptions()) == ReadOptions()
    assert options.override({"lakebed.memory": "64MB"}).read_buffer == 1 << 20
    assert ReadOptions.from_properties(options.to_properties()) == options


def test_read_options_that_cannot_be() -> None:
    for bad in ({"memory": 0}, {"memory": "lots"}, {"nonsense": 1}, {"threads": -1}):
        with pytest.raises(InvalidRequest):
            ReadOptions().override(**bad)
    with pytest.warns(UserWarning, match="did you mean"):
        ReadOptions().override({"hoodie.metadata.enabled": "false"})
