r"""The small text files of a table: `hoodie.properties`, `index.json` and the partition metafile.

    hoodie.properties            Java properties text
      #Updated at <ISO instant>      comment lines begin with # or !
      #<Java date>
      key=value                      `=`, `:` or blanks end the key; \ escapes one character, \uXXXX a UTF-16 unit,
                                     \ at the end of a line joins it with the next, whose leading blanks do not count
    .hoodie_partition_metadata   the same grammar, with commitTime and partitionDepth
    .index_defs/index.json       {"indexDefinitions": {name: {indexName, indexType, indexFunction, sourceFields, ...}}}

Real files escape the colons of JSON values, so splitting at the first `=` is not enough. The table's checksum is the
CRC-32 of `<database>.<table name>`: it does not cover the file, but a wrong one reveals a file that was damaged or
edited, and real Hudi refuses it as well.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.errors import CorruptTable

TABLE_NAME_KEY = "hoodie.table.name"
DATABASE_NAME_KEY = "hoodie.database.name"
CHECKSUM_KEY = "hoodie.table.checksum"

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_RENDERED_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {c: "\\" + c for c in "\\:=#!"}
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")


def parse_properties(data: bytes, file: str) -> dict[str, str]:
    """The key-value pairs of Java properties text; of a repeated key the last one counts, as in Java."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what java.util.Properties assumes of a plain stream
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key, file)] = _unescape(value, file)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and leading blanks, continuations joined."""
    pending: str | None = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(_BLANKS)
        if pending is None and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = (pending or "") + line[:-1]
            continue
        yield (pending or "") + line
        pending = None
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Key and value, both still escaped: the key ends at the first bare `=`, `:` or blank."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str, file: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char != "\\":
            out.append(char)
            at += 1
            continue
        follower = text[at + 1 : at + 2]
        if follower == "u":
            digits = text[at + 2 : at + 6]
            if not _HEX4.fullmatch(digits):
                raise CorruptTable(f"malformed escape \\u{digits} in a property", file=file)
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            out.append(_ESCAPES.get(follower, follower))
            at += 2
    joined = "".join(out)
    try:  # two escaped UTF-16 units may make one character
        return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise CorruptTable("a property holds half of a surrogate pair", file=file) from None


def render_properties(properties: Mapping[str, str], comments: Sequence[str] = ()) -> bytes:
    """Java properties text in key order, which keeps rewritten files easy to compare; comments become `#` lines."""
    lines = ["#" + line for comment in comments for line in re.split(r"[\r\n]+", comment)]
    lines += [f"{_escape(key, True)}={_escape(properties[key], False)}" for key in sorted(properties)]
    return "".join(line + "\n" for line in lines).encode("ascii", "backslashreplace")


def _escape(text: str, is_key: bool) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        if char == " ":
            out.append("\\ " if is_key or at == 0 else " ")
        elif char in _RENDERED_ESCAPES:
            out.append(_RENDERED_ESCAPES[char])
        elif " " < char < "\x7f":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{int.from_bytes(units[i : i + 2], 'big'):04X}" for i in range(0, len(units), 2)]
    return "".join(out)


def table_checksum(properties: Mapping[str, str]) -> int:
    """The checksum that belongs to a table of this name."""
    database, name = properties.get(DATABASE_NAME_KEY, ""), properties.get(TABLE_NAME_KEY, "")
    return zlib.crc32(f"{database}.{name}".encode())


def verify_checksum(properties: Mapping[str, str], file: str) -> None:
    """Refuse a file whose checksum is wrong; none at all is fine, old writers left it out."""
    stored = properties.get(CHECKSUM_KEY)
    if stored is None:
        return
    wanted = table_checksum(properties)
    if stored.lstrip("0") != str(wanted).lstrip("0") or not stored:
        raise CorruptTable(
            f"{CHECKSUM_KEY} is {stored[:40]!r} where the table's name gives {wanted}",
            file=file,
            hint="The file was damaged or the table renamed by hand; restore it or correct the checksum.",
        )


@dataclass(frozen=True, slots=True)
class PartitionMetafile:
    """What marks a folder as a partition: who created it, and how deep it is below the table."""

    commit_time: str
    depth: int


def parse_partition_metafile(data: bytes, file: str) -> PartitionMetafile:
    """From the text form of the metafile."""
    return partition_metafile_from(parse_properties(data, file), file)


def partition_metafile_from(properties: Mapping[str, str], file: str) -> PartitionMetafile:
    """From properties or from the footer of a metafile kept in the base format."""
    commit_time, depth = properties.get("commitTime"), properties.get("partitionDepth", "")
    if commit_time is None or not re.fullmatch(r"[0-9]{1,4}", depth):
        raise CorruptTable("a partition metafile needs commitTime and a numeric partitionDepth", file=file)
    return PartitionMetafile(commit_time, int(depth))


def render_partition_metafile(metafile: PartitionMetafile, comments: Sequence[str] = ()) -> bytes:
    """The text form of the metafile."""
    pairs = {"commitTime": metafile.commit_time, "partitionDepth": str(metafile.depth)}
    return render_properties(pairs, ("partition metadata", *comments))


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One index of the metadata table as `index.json` defines it. `version` is V1, V2 or None in old files."""

    name: str
    type: str
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None


def parse_index_definitions(data: bytes, file: str) -> dict[str, IndexDefinition]:
    """Index definitions by name; an empty file holds none."""
    if not data.strip():
        return {}
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise CorruptTable(f"index definitions are not JSON: {problem}", file=file) from None
    entries = loaded.get("indexDefinitions") if isinstance(loaded, dict) else None
    if entries is None:
        entries = {}
    if not isinstance(loaded, dict) or not isinstance(entries, dict):
        raise CorruptTable("index definitions must be an object under indexDefinitions", file=file)
    return {name: _index_definition(name, entry, file) for name, entry in entries.items()}


def _index_definition(name: str, entry: Any, file: str) -> IndexDefinition:
    if not isinstance(entry, dict):
        raise CorruptTable(f"index definition {name!r} is not an object", file=file)
    fields, options = entry.get("sourceFields") or [], entry.get("indexOptions") or {}
    texts = [entry.get(key) or "" for key in ("indexName", "indexType", "indexFunction", "version")]
    if not isinstance(fields, list) or not isinstance(options, dict):
        raise CorruptTable(f"index definition {name!r} has malformed sourceFields or indexOptions", file=file)
    if not all(isinstance(text, str) for text in (*texts, *fields)):
        raise CorruptTable(f"index definition {name!r} holds a value that is not text", file=file)
    return IndexDefinition(
        name=texts[0] or name,
        type=texts[1],
        function=texts[2],
        source_fields=tuple(fields),
        options={key: str(value) for key, value in options.items()},
        version=texts[3] or None,
    )


def render_index_definitions(definitions: Mapping[str, IndexDefinition]) -> bytes:
    """The content of `index.json`."""
    entries: dict[str, dict[str, Any]] = {}
    for key, definition in definitions.items():
        entries[key] = {
            "indexName": definition.name,
            "indexType": definition.type,
            "indexFunction": definition.function,
            "sourceFields": list(definition.source_fields),
            "indexOptions": dict(definition.options),
        }
        if definition.version:
            entries[key]["version"] = definition.version
    return json.dumps({"indexDefinitions": entries}, indent=2).encode()
