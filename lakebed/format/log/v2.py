"""Log format version 2: the file is one native Parquet file, and the block header is in its footer.

    row groups    data rows | delete rows | none at all for a command
    footer        key-value entries, in one of three spellings:
      A   hudi.log.format.metadata = {"INSTANT_TIME": "…", "VERSION": "2", …}    what Hudi's development line reads
      B   hudi.log.format.INSTANT_TIME = …                                       a proposal that files may still carry
      C   hudi.log.instant_time = …, hudi.log.block_type = parquet_data | delete | command | cdc       RFC-103's text

A and C are written, so that both kinds of reader find what they look for; of what is read, A goes before B before C.
What the file holds is the middle extension of its name, `<…>.{log|deletes|cdc}.<format>`; only a file with the names of
version 1 needs C's block type. Unknown entries are passed over; a later version is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.log.block import FORMAT_V2, BlockKind, Header, LogBlock
from lakebed.model.files import LogFile, LogKind

PARQUET_MAGIC = b"PAR1"

MAP_KEY = "hudi.log.format.metadata"
ENTRY_PREFIX = "hudi.log.format."
VERSION = "VERSION"

RFC_VERSION_KEY = "hudi.log.format_version"
RFC_TYPE_KEY = "hudi.log.block_type"
RFC_KEYS: Mapping[Header, str] = MappingProxyType(
    {
        Header.INSTANT_TIME: "hudi.log.instant_time",
        Header.TARGET_INSTANT_TIME: "hudi.log.target_instant_time",
        Header.COMMAND_BLOCK_TYPE: "hudi.log.command_block_type",
        Header.COMPACTED_BLOCK_TIMES: "hudi.log.compacted_block_times",
        Header.RECORD_POSITIONS: "hudi.log.record_positions",
        Header.BLOCK_IDENTIFIER: "hudi.log.block_identifier",
        Header.IS_PARTIAL: "hudi.log.is_partial",
        Header.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS: "hudi.log.base_file_instant_of_positions",
    }
)
_TYPE_WORDS: Mapping[BlockKind, str] = MappingProxyType(
    {
        BlockKind.PARQUET_DATA: "parquet_data",
        BlockKind.DELETE: "delete",
        BlockKind.COMMAND: "command",
        BlockKind.CDC_DATA: "cdc",
    }
)
_KIND_OF_WORD = {word: kind for kind, word in _TYPE_WORDS.items()}
_KIND_OF_NAME = {
    LogKind.LOG: BlockKind.PARQUET_DATA,
    LogKind.DELETES: BlockKind.DELETE,
    LogKind.CDC: BlockKind.CDC_DATA,
}


def block_from_footer(entries: Mapping[str, str], log: LogFile) -> LogBlock:
    """The one block of a native log file, from its footer entries and its name."""
    named = _named_entries(entries, log.path)
    _check_version(named.get(VERSION), log.path)
    header = {key: named[key.name] for key in Header if key.name in named}
    if not header.get(Header.INSTANT_TIME):
        header[Header.INSTANT_TIME] = log.requested_time
    kind = _kind(entries.get(RFC_TYPE_KEY), header, log)
    return LogBlock(kind, FORMAT_V2, MappingProxyType(header), log.path, 0, 0, log.size)


def _named_entries(entries: Mapping[str, str], file: str) -> dict[str, str]:
    """Header names and texts out of the three spellings."""
    named = {key.name: entries[spelling] for key, spelling in RFC_KEYS.items() if spelling in entries}
    if RFC_VERSION_KEY in entries:
        named[VERSION] = entries[RFC_VERSION_KEY]
    for key, value in entries.items():
        if key.startswith(ENTRY_PREFIX) and key != MAP_KEY:
            named[key.removeprefix(ENTRY_PREFIX)] = value
    if MAP_KEY in entries:
        try:
            loaded = json.loads(entries[MAP_KEY])
        except (ValueError, RecursionError) as error:
            raise CorruptTable(f"the footer entry {MAP_KEY} is not JSON", file=file) from error
        if not isinstance(loaded, dict) or not all(isinstance(value, str) for value in loaded.values()):
            raise CorruptTable(f"the footer entry {MAP_KEY} is not a map of texts", file=file)
        named.update(loaded)
    return named


def _check_version(text: str | None, file: str) -> None:
    if text is None:
        return
    if not (text.isascii() and text.isdigit()):
        raise CorruptTable(f"the log format version {text[:40]!r} is no number", file=file)
    if len(text) > 9 or int(text) > FORMAT_V2:
        raise UnsupportedFormat(
            f"log format version {text[:40]} is newer than {FORMAT_V2}", file=file, hint="Upgrade lakebed to read it."
        )


def _kind(word: str | None, header: Mapping[Header, str], log: LogFile) -> BlockKind:
    by_footer = None
    if word is not None:
        by_footer = _KIND_OF_WORD.get(word)
        if by_footer is None:
            raise UnsupportedFormat(f"log block type {word[:40]!r} is unknown", file=log.path)
    if by_footer is BlockKind.COMMAND or Header.COMMAND_BLOCK_TYPE in header:
        return BlockKind.COMMAND
    if not log.native:
        if by_footer is None:
            raise CorruptTable(f"neither name nor footer ({RFC_TYPE_KEY}) states what the log holds", file=log.path)
        return by_footer
    by_name = _KIND_OF_NAME[log.kind]
    if by_name is BlockKind.PARQUET_DATA and log.name.endswith(".hfile"):
        return BlockKind.HFILE_DATA
    if by_footer is not None and by_footer is not by_name:
        raise CorruptTable(f"the name states {log.kind} and the footer {word}", file=log.path)
    return by_name


def footer_entries(kind: BlockKind, header: Mapping[Header, str]) -> dict[str, str]:
    """The footer entries of a native log to be written: Hudi's map and RFC-103's keys, with the same content."""
    if kind not in _TYPE_WORDS:
        raise InvalidRequest(f"a native log cannot hold a {kind.name} block")
    if Header.INSTANT_TIME not in header:
        raise InvalidRequest("a log needs the instant that writes it")
    named = {VERSION: str(FORMAT_V2)} | {key.name: header[key] for key in sorted(header)}
    entries = {MAP_KEY: json.dumps(named, ensure_ascii=False, separators=(",", ":"))}
    entries[RFC_VERSION_KEY] = str(FORMAT_V2)
    entries[RFC_TYPE_KEY] = _TYPE_WORDS[kind]
    entries.update({RFC_KEYS[key]: header[key] for key in sorted(header) if key in RFC_KEYS})
    return entries
