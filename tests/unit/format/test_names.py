"""The grammar of names, against every name in the golden tables."""

from __future__ import annotations

import zipfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidRequest
from lakebed.format.names import (
    BaseFileName,
    LogFileName,
    MarkerName,
    MarkerType,
    MetadataFileId,
    hashing_meta_file_name,
    instant_file_name,
    is_partition_metafile,
    manifest_file_name,
    marker_dir,
    metadata_file_prefix,
    parse_base_file,
    parse_hashing_meta_file,
    parse_heartbeat_file,
    parse_history_file,
    parse_instant_file,
    parse_log_file,
    parse_manifest_file,
    parse_marker_file,
    parse_metadata_file_id,
    parse_server_markers_file,
    server_markers_file_name,
)
from lakebed.model.files import LogKind
from lakebed.model.instant import Action, Instant, State
from tests.conftest import FIXTURES, GOLDEN_NAMES

BEGIN, DONE = "20261115102952311", "20261115102953007"
UUID = "c3d08025-fe18-4e67-9fe8-f8eaf18a6c40-0"


def golden_paths() -> list[str]:
    paths: list[str] = []
    for name in GOLDEN_NAMES:
        with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
            paths += [path for path in archive.namelist() if not path.endswith("/")]
    return paths


def rendered(name: str) -> dict[str, str]:
    """What each rule that accepts the name renders it to."""
    out: dict[str, str] = {}
    for rule, parse in (
        ("base", parse_base_file),
        ("log", parse_log_file),
        ("history", parse_history_file),
        ("marker", parse_marker_file),
    ):
        parsed = parse(name)
        if parsed is not None:
            out[rule] = parsed.render()
    instant = parse_instant_file(name)
    if instant is not None:
        out["instant"] = instant_file_name(instant)
    number = parse_manifest_file(name)
    if number is not None:
        out["manifest"] = manifest_file_name(number)
    markers = parse_server_markers_file(name)
    if markers is not None:
        out["markers"] = server_markers_file_name(markers)
    hashing = parse_hashing_meta_file(name)
    if hashing is not None:
        out["hashing"] = hashing_meta_file_name(hashing)
    if is_partition_metafile(name):
        out["metafile"] = name
    heartbeat = parse_heartbeat_file(name)
    if heartbeat is not None:
        out["heartbeat"] = heartbeat
    if name in ("hoodie.properties", "index.json", "_version_", "MARKERS.type"):
        out["fixed"] = name
    return out


def test_every_golden_name_has_one_rule_and_renders_back() -> None:
    seen: Counter[str] = Counter()
    for path in golden_paths():
        name = path.rpartition("/")[2]
        found = rendered(name)
        assert list(found.values()) == [name], path
        seen.update(found.keys())
    assert seen["base"] > 250
    assert seen["log"] > 250
    assert seen["instant"] > 1700
    assert (
        min(seen[rule] for rule in ("history", "marker", "markers", "manifest", "hashing", "heartbeat", "metafile")) > 0
    )


def test_golden_metadata_file_ids_name_their_partition() -> None:
    checked = 0
    for path in golden_paths():
        folder, _, name = path.rpartition("/")
        parsed = parse_base_file(name) or parse_log_file(name)
        if parsed is None or "/.hoodie/metadata/" not in path or "/.hoodie/metadata/.hoodie/" in path:
            continue
        file_id = parse_metadata_file_id(parsed.file_id)
        assert file_id is not None
        assert file_id.render() == parsed.file_id
        assert file_id.prefix == metadata_file_prefix(folder.rpartition("/")[2])
        checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("name", "instant"),
    [
        (f"{BEGIN}.commit.requested", Instant(BEGIN, Action.COMMIT, State.REQUESTED)),
        (f"{BEGIN}.inflight", Instant(BEGIN, Action.COMMIT, State.INFLIGHT)),
        (f"{BEGIN}_{DONE}.commit", Instant(BEGIN, Action.COMMIT, State.COMPLETED, DONE)),
        (f"{BEGIN}.deltacommit.inflight", Instant(BEGIN, Action.DELTA_COMMIT, State.INFLIGHT)),
        (f"{BEGIN}.logcompaction.requested", Instant(BEGIN, Action.LOG_COMPACTION, State.REQUESTED)),
        (f"{BEGIN}.savepoint.inflight", Instant(BEGIN, Action.SAVEPOINT, State.INFLIGHT)),
        (f"{BEGIN}_{DONE}.replacecommit", Instant(BEGIN, Action.REPLACE_COMMIT, State.COMPLETED, DONE)),
        (f"{BEGIN}_{DONE}.schemacommit", Instant(BEGIN, Action.SCHEMA_COMMIT, State.COMPLETED, DONE)),
        ("20170101134598.clean.inflight", Instant("20170101134598", Action.CLEAN, State.INFLIGHT)),
    ],
)
def test_instants(name: str, instant: Instant) -> None:
    assert parse_instant_file(name) == instant
    assert instant_file_name(instant) == name


@pytest.mark.parametrize(
    "name",
    [
        f"{BEGIN}.commit",  # a completed instant of table version 6
        f"{BEGIN}.requested",
        f"{BEGIN}.commit.inflight",
        f"{BEGIN}.savepoint.requested",
        f"{BEGIN}_{DONE}.compaction",
        f"{BEGIN}_{DONE}.commit.requested",
        f"{BEGIN}_{DONE}.inflight",
        f"{BEGIN}_{DONE}",
        f"{BEGIN}.merge.inflight",
        f".{BEGIN}.commit.requested.crc",
        "hoodie.properties",
        "history",
        "2026111510295231١.inflight",  # a digit, but not an ASCII one
        f"{BEGIN}.inflight\n",
        "",
    ],
)
def test_names_that_are_no_instants(name: str) -> None:
    assert parse_instant_file(name) is None


@pytest.mark.parametrize(
    ("action", "word"),
    [(Action.COMPACTION, "commit"), (Action.LOG_COMPACTION, "deltacommit"), (Action.CLUSTERING, "replacecommit")],
)
def test_rewriting_actions_complete_under_another_word(action: Action, word: str) -> None:
    assert instant_file_name(Instant(BEGIN, action, State.COMPLETED, DONE)) == f"{BEGIN}_{DONE}.{word}"


def test_a_savepoint_is_never_requested() -> None:
    with pytest.raises(InvalidRequest):
        instant_file_name(Instant(BEGIN, Action.SAVEPOINT, State.REQUESTED))


def test_a_native_log_is_no_base_file() -> None:
    name = f"{UUID}_1-0-1_{BEGIN}_3.log.parquet"
    assert parse_base_file(name) is None
    assert parse_log_file(name) == LogFileName(UUID, BEGIN, 3, "1-0-1", LogKind.LOG, True, "parquet")
    assert parse_base_file(f"{UUID}_1-0-1_{BEGIN}.parquet") == BaseFileName(UUID, "1-0-1", BEGIN, "parquet")


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (f".{UUID}_{BEGIN}.log.12_0-1-2", LogFileName(UUID, BEGIN, 12, "0-1-2", LogKind.LOG, False)),
        (f".{UUID}_{BEGIN}.log.1_0-1-2.cdc", LogFileName(UUID, BEGIN, 1, "0-1-2", LogKind.CDC, False)),
        (f".{UUID}_{BEGIN}.log.1", LogFileName(UUID, BEGIN, 1, "", LogKind.LOG, False)),
        (
            f"{UUID}_0-1-2_{BEGIN}_1.deletes.parquet",
            LogFileName(UUID, BEGIN, 1, "0-1-2", LogKind.DELETES, True, "parquet"),
        ),
        (
            f"files-0000-0_0-1-2_{BEGIN}_1.cdc.hfile",
            LogFileName("files-0000-0", BEGIN, 1, "0-1-2", LogKind.CDC, True, "hfile"),
        ),
    ],
)
def test_log_names(name: str, parsed: LogFileName) -> None:
    assert parse_log_file(name) == parsed
    assert parsed.render() == name


@pytest.mark.parametrize(
    "name",
    [
        f"{UUID}_{BEGIN}.log.1_0-1-2",  # not hidden
        f".{UUID}_{BEGIN}.archive.1_0-1-2",
        f".{UUID}_{BEGIN}.log.01_0-1-2",
        f".{UUID}_{BEGIN}.log.1_0-1-2.crc",
        f"..{UUID}_{BEGIN}.log.1_0-1-2",
        f"{UUID}_1-0-1_{BEGIN}_3.delete.parquet",
        f"a/{UUID}_1-0-1_{BEGIN}_3.log.parquet",
        f"{UUID}_1-0-1_{BEGIN}_3.log.parquet.crc",
    ],
)
def test_names_that_are_no_logs(name: str) -> None:
    assert parse_log_file(name) is None
    assert parse_base_file(name) is None


@pytest.mark.parametrize(
    "name",
    [f"{UUID}_1-0-1_{BEGIN}.csv", f"{UUID}_1-0-1.parquet", "part-0001.parquet", f".{UUID}_1-0-1_{BEGIN}.parquet.crc"],
)
def test_names_that_are_no_base_files(name: str) -> None:
    assert parse_base_file(name) is None


def test_half_written_manifests_do_not_count() -> None:
    assert parse_manifest_file("manifest_12") == 12
    assert parse_manifest_file("manifest_12.tmp") is None
    assert parse_manifest_file("manifest_012") is None


def test_markers() -> None:
    name = f"{UUID}_1-2829-4618_{BEGIN}.parquet.marker.MERGE"
    assert parse_marker_file(name) == MarkerName(f"{UUID}_1-2829-4618_{BEGIN}.parquet", MarkerType.MERGE)
    assert marker_dir(BEGIN, "p1") == f".hoodie/.temp/{BEGIN}/p1"
    assert marker_dir(BEGIN) == f".hoodie/.temp/{BEGIN}"
    assert parse_marker_file("x.marker.DELETE") is None


def test_metadata_file_ids() -> None:
    assert MetadataFileId("secondary-index-idx-txt", 7).render() == "secondary-index-idx-txt-0007-0"
    assert parse_metadata_file_id("record-index-12345-0") == MetadataFileId("record-index", 12345)
    assert parse_metadata_file_id("record-index-00012-0") is None
    assert parse_metadata_file_id(UUID) is None
    assert metadata_file_prefix("column_stats") == "col-stats"
    assert metadata_file_prefix("secondary_index_idx_txt") == "secondary-index-idx-txt"


@given(st.text(alphabet=st.sampled_from("0123456789abf-_./\n\\"), max_size=60) | st.text(max_size=40))
def test_any_text_parses_to_itself_or_nothing(name: str) -> None:
    for text in rendered(name).values():
        assert text == name


@given(
    st.sampled_from(
        [
            f"{BEGIN}_{DONE}.commit",
            f".{UUID}_{BEGIN}.log.1_0-1-2.cdc",
            f"{UUID}_1-0-1_{BEGIN}_3.log.parquet",
            f"{BEGIN}_{DONE}_0.parquet",
        ]
    ),
    st.data(),
)
def test_damaged_names_parse_to_themselves_or_nothing(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    damaged = name[:at] + data.draw(st.text(max_size=2)) + name[at + 1 :]
    for text in rendered(damaged).values():
        assert text == damaged
