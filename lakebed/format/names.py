"""Every file and folder name of the format, as pairs of parse and render.

    base file      <fileId>_<writeToken>_<requested time>.<parquet|orc|hfile|lance>
    log, inline    .<fileId>_<requested time>.log.<version>[_<writeToken>[.cdc]]   (hidden; no token in very old tables)
    log, native    <fileId>_<writeToken>_<requested time>_<version>.<log|deletes|cdc>.<format>
    instant        <requested time>.<action>.requested   <requested time>.<action>.inflight
                   <requested time>_<completion time>.<action>
                   (an inflight commit drops its word: <requested time>.inflight; a savepoint is never requested;
                   compaction, logcompaction and clustering complete as commit, deltacommit and replacecommit)
    history        <min requested time>_<max requested time>_<level>.parquet     manifest_<n>     _version_
    marker         <data file name>.marker.<CREATE|MERGE|APPEND>     MARKERS<n> (many such, a line each)    MARKERS.type
    others         <requested time>.hashing_meta  .hoodie_partition_metadata[.parquet|.orc]  .heartbeat/<requested time>

The grammar is defined only here because names carry meaning: the requested time in a data file's name decides whether
the file counts. A name that matches no rule parses to None, so a listing can hold foreign files without harm; what does
parse renders back to the same text. Ids hold neither `_` nor `.`, which keeps the rules apart: a native log has one `_`
more than a base file. Digits are ASCII digits only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from lakebed.config.base_file_formats import BASE_FILE_FORMATS
from lakebed.errors import InvalidRequest
from lakebed.model.files import LogKind
from lakebed.model.instant import Action, Instant, State

HOODIE_DIR = ".hoodie"
PROPERTIES_FILE = ".hoodie/hoodie.properties"
PROPERTIES_BACKUP_FILE = ".hoodie/hoodie.properties.backup"
TIMELINE_DIR = ".hoodie/timeline"
HISTORY_DIR = ".hoodie/timeline/history"
METADATA_DIR = ".hoodie/metadata"
INDEX_DEFS_FILE = ".hoodie/.index_defs/index.json"
SCHEMA_DIR = ".hoodie/.schema"
TEMP_DIR = ".hoodie/.temp"
HEARTBEAT_DIR = ".hoodie/.heartbeat"
HASHING_META_DIR = ".hoodie/.bucket_index/consistent_hashing_metadata"
LOCKS_DIR = ".hoodie/.locks"
LOCK_FILE = ".hoodie/.locks/table_lock.json"
HUDI_LOCK_FILE = ".hoodie/lock"

PARTITION_METAFILE = ".hoodie_partition_metadata"
VERSION_FILE = "_version_"
HASHING_META_SUFFIX = ".hashing_meta"

INITIAL_HASHING_INSTANT = "00000000000000"
ROLLBACK_TOKEN = "1-0-1"
"""The write token of logs that hold a rollback command: no task wrote them, and no commit names them."""

_TIME = r"[0-9]{14,32}"
_ID = r"[^/._\x00]+"
_TOKEN = r"[0-9]+-[0-9]+-[0-9]+"

_TIME_RE = re.compile(_TIME)
_BASE = re.compile(rf"({_ID})_([0-9]+(?:-[0-9]+)*)_({_TIME})\.([a-z0-9]+)")
_NATIVE_LOG = re.compile(rf"({_ID})_({_TOKEN})_({_TIME})_(0|[1-9][0-9]{{0,8}})\.(log|deletes|cdc)\.([^/._\x00]+)")
_INLINE_LOG = re.compile(rf"\.({_ID})_({_TIME})\.log\.(0|[1-9][0-9]{{0,8}})(?:_({_TOKEN})(\.cdc)?)?")
_INSTANT = re.compile(rf"({_TIME})(?:_({_TIME}))?(?:\.([a-z]+))?(?:\.(requested|inflight))?")
_HISTORY = re.compile(rf"({_TIME})_({_TIME})_(0|[1-9][0-9]{{0,2}})\.parquet")
_MANIFEST = re.compile(r"manifest_(0|[1-9][0-9]{0,17})")
_MARKER = re.compile(r"([^/\x00]+)\.marker\.(CREATE|MERGE|APPEND)")
_SERVER_MARKERS = re.compile(r"MARKERS(0|[1-9][0-9]{0,5})")
_HASHING_META = re.compile(rf"({_TIME})\.hashing_meta")
_METADATA_FILE_ID = re.compile(r"([^/._\x00]+)-([0-9]{4,})-0")


def is_instant_time(text: str) -> bool:
    """Whether the text is a requested or completion time: 17 digits, 14 in old tables."""
    return _TIME_RE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """The name of a base file."""

    file_id: str
    write_token: str
    requested_time: str
    extension: str

    def render(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.requested_time}.{self.extension}"


@dataclass(frozen=True, slots=True)
class LogFileName:
    """The name of a log file in either naming. `extension` is the format of a native log, None for an inline one."""

    file_id: str
    requested_time: str
    version: int
    write_token: str
    kind: LogKind
    native: bool
    extension: str | None = None

    def render(self) -> str:
        if self.native:
            stem = f"{self.file_id}_{self.write_token}_{self.requested_time}_{self.version}"
            return f"{stem}.{self.kind}.{self.extension}"
        token = f"_{self.write_token}" if self.write_token else ""
        cdc = ".cdc" if self.kind is LogKind.CDC else ""
        return f".{self.file_id}_{self.requested_time}.log.{self.version}{token}{cdc}"


def parse_base_file(name: str) -> BaseFileName | None:
    """The parts of a base file's name; None for anything else, native logs included."""
    match = _BASE.fullmatch(name)
    return BaseFileName(*match.groups()) if match and BASE_FILE_FORMATS.knows(match[4]) else None


def parse_log_file(name: str) -> LogFileName | None:
    """The parts of a log file's name, native naming first; None for anything else."""
    match = _NATIVE_LOG.fullmatch(name)
    if match:
        file_id, token, time, version, kind, extension = match.groups()
        return LogFileName(file_id, time, int(version), token, LogKind(kind), True, extension)
    match = _INLINE_LOG.fullmatch(name)
    if match:
        file_id, time, version, token, cdc = match.groups()
        return LogFileName(file_id, time, int(version), token or "", LogKind.CDC if cdc else LogKind.LOG, False)
    return None


def parse_instant_file(name: str) -> Instant | None:
    """The instant that a timeline file stands for; None for anything that is not a timeline file."""
    match = _INSTANT.fullmatch(name)
    if match is None:
        return None
    requested_time, completion, word, suffix = match.groups()
    if word in ("requested", "inflight") and suffix is None:
        word, suffix = None, word
    try:
        action = Action.COMMIT if word is None else Action(word)
    except ValueError:
        return None
    if completion is not None:
        if word is None or suffix is not None or action.is_service:
            return None
        return Instant(requested_time, action, State.COMPLETED, completion)
    if suffix is None or (suffix == "requested" and word is None):
        return None
    if (action is Action.COMMIT and suffix == "inflight") != (word is None):
        return None
    if action is Action.SAVEPOINT and suffix == "requested":
        return None
    return Instant(requested_time, action, State(suffix))


def instant_file_name(instant: Instant) -> str:
    """The name under which this state of the instant is stored."""
    requested_time, action = instant.requested_time, instant.action
    if instant.state is State.COMPLETED:
        return f"{requested_time}_{instant.completion_time}.{action.completes_as}"
    if action is Action.SAVEPOINT and instant.state is State.REQUESTED:
        raise InvalidRequest("a savepoint has no requested state")
    if action is Action.COMMIT and instant.state is State.INFLIGHT:
        return f"{requested_time}.inflight"
    return f"{requested_time}.{action}.{instant.state}"


@dataclass(frozen=True, slots=True, order=True)
class HistoryFileName:
    """A file of the history timeline: the requested times of its first and last action, and its level."""

    min_time: str
    max_time: str
    level: int

    def render(self) -> str:
        return f"{self.min_time}_{self.max_time}_{self.level}.parquet"


def parse_history_file(name: str) -> HistoryFileName | None:
    """The parts of a history file's name; None for anything else."""
    match = _HISTORY.fullmatch(name)
    return HistoryFileName(match[1], match[2], int(match[3])) if match else None


def is_history_file(name: str) -> bool:
    """Whether the name is one of a history file; a manifest may list thousands, which only this looks at."""
    return _HISTORY.fullmatch(name) is not None


def history_file_name(min_time: str, max_time: str, level: int) -> str:
    """The name of the history file that holds actions of these requested times."""
    return HistoryFileName(min_time, max_time, level).render()


def parse_manifest_file(name: str) -> int | None:
    """The number of a manifest; None for anything else, such as a half-written `manifest_9.tmp`."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def manifest_file_name(number: int) -> str:
    """The name of the manifest of that number."""
    return f"manifest_{number}"


class MarkerType(StrEnum):
    """What a writer was about to do with the file that a marker announces."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True, slots=True)
class MarkerName:
    """The name of a direct marker, or one line of a timeline-server marker file without its partition."""

    data_file: str
    io_type: MarkerType

    def render(self) -> str:
        return f"{self.data_file}.marker.{self.io_type}"


def parse_marker_file(name: str) -> MarkerName | None:
    """The data file that a marker announces; None for anything else."""
    match = _MARKER.fullmatch(name)
    return MarkerName(match[1], MarkerType(match[2])) if match else None


def parse_server_markers_file(name: str) -> int | None:
    """The number of a file in which a timeline server keeps many markers; None for anything else."""
    match = _SERVER_MARKERS.fullmatch(name)
    return int(match[1]) if match else None


def server_markers_file_name(number: int) -> str:
    """The name of the timeline server's marker file of that number."""
    return f"MARKERS{number}"


def marker_dir(requested_time: str, partition_path: str = "") -> str:
    """The folder, relative to the table, of an instant's markers for one partition."""
    folder = f"{TEMP_DIR}/{requested_time}"
    return f"{folder}/{partition_path}" if partition_path else folder


def heartbeat_file(requested_time: str) -> str:
    """The path, relative to the table, of a writer's heartbeat."""
    return f"{HEARTBEAT_DIR}/{requested_time}"


def parse_heartbeat_file(name: str) -> str | None:
    """The requested time that a file in the heartbeat folder belongs to."""
    return name if is_instant_time(name) else None


def hashing_meta_file_name(requested_time: str = INITIAL_HASHING_INSTANT) -> str:
    """The name of a partition's consistent-hashing metadata as of an instant."""
    return f"{requested_time}{HASHING_META_SUFFIX}"


def parse_hashing_meta_file(name: str) -> str | None:
    """The instant of a consistent-hashing metadata file; None for anything else."""
    match = _HASHING_META.fullmatch(name)
    return match[1] if match else None


def hashing_meta_dir(partition_path: str) -> str:
    """The folder, relative to the table, of a partition's consistent-hashing metadata."""
    return f"{HASHING_META_DIR}/{partition_path}" if partition_path else HASHING_META_DIR


def partition_metafile_name(base_format: str | None = None) -> str:
    """The name of a partition's metafile; tables may keep it in the footer of a file in their base format."""
    return f"{PARTITION_METAFILE}.{base_format}" if base_format else PARTITION_METAFILE


def is_partition_metafile(name: str) -> bool:
    """Whether the name marks its folder as a partition, in any of its three forms."""
    return name in _PARTITION_METAFILES


_PARTITION_METAFILES = frozenset(partition_metafile_name(base_format) for base_format in (None, "parquet", "orc"))

_METADATA_PREFIXES = {
    "files": "files",
    "column_stats": "col-stats",
    "partition_stats": "partition-stats",
    "bloom_filters": "bloom-filters",
    "record_index": "record-index",
}


@dataclass(frozen=True, slots=True)
class MetadataFileId:
    """A file id of the metadata table: `<prefix>-<number, four digits>-0`, where the number is the key's hash slot."""

    prefix: str
    number: int

    def render(self) -> str:
        return f"{self.prefix}-{self.number:04d}-0"


def metadata_file_prefix(partition: str) -> str:
    """The prefix of the file ids in a partition of the metadata table."""
    return _METADATA_PREFIXES.get(partition) or partition.replace("_", "-")


def parse_metadata_file_id(file_id: str) -> MetadataFileId | None:
    """The parts of a metadata table's file id; None for ids of data tables."""
    match = _METADATA_FILE_ID.fullmatch(file_id)
    if match is None or f"{int(match[2]):04d}" != match[2]:
        return None
    return MetadataFileId(match[1], int(match[2]))
