"""Damage to a table's bytes, as small values that can be kept in a file, and what a reader may answer to it.

The contract of every read of damaged bytes: an answer or a `LakebedError`; never another exception, never more time or
memory than a small table needs. What cannot be noticed by any reader, because the format has no checksum there:

    a byte inside a value of a data file     an Avro block is not compressed, Parquet pages of real Hudi and ORC stripes
                                             carry no checksum: the answer may hold that other value, or another key
    a property that still parses             the checksum of hoodie.properties covers the table's name only
    text inside a commit                     the schema is text there: a column may come out under another name
    a completed instant that is gone         is what a write looks like that never completed

For every other file of the table's metadata the keys of the answer must be right, or there must be no answer.
"""

from __future__ import annotations

import pickle
import resource
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from lakebed.errors import LakebedError
from lakebed.model.schema import META_FIELD_NAMES
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient

KEY = META_FIELD_NAMES[2]
NO_METADATA_TABLE = {"hoodie.metadata.enable": "false"}
QUERIES = ("snapshot", "folders", "read_optimized", "incremental", "look_up", "tight", "count", "inspect")
SLOW_SECONDS = 20.0
MOST_KILOBYTES = 300_000


class Step(NamedTuple):
    """One change of a file's bytes; `at` and `size` are taken modulo what is there."""

    kind: str
    at: int = 0
    size: int = 1
    value: int = 0


def flip(data: bytes, step: Step) -> bytes:
    if not data:
        return data
    at = step.at % len(data)
    return data[:at] + bytes([data[at] ^ (step.value % 255 + 1)]) + data[at + 1 :]


def overwrite(data: bytes, step: Step) -> bytes:
    """A stretch of one value: zeros of a page that never reached the disk, or the largest of lengths."""
    at = step.at % (len(data) + 1)
    stretch = data[at : at + step.size]
    return data[:at] + bytes([step.value % 256]) * len(stretch) + data[at + len(stretch) :]


def truncate(data: bytes, step: Step) -> bytes:
    return data[: step.at % (len(data) + 1)]


def duplicate(data: bytes, step: Step) -> bytes:
    """A stretch twice, as when a broken append was sent again."""
    at = step.at % (len(data) + 1)
    return data[: at + step.size] + data[at:]


def cut_out(data: bytes, step: Step) -> bytes:
    at = step.at % (len(data) + 1)
    return data[:at] + data[at + step.size :]


STEPS = {step.__name__: step for step in (flip, overwrite, truncate, duplicate, cut_out)}


@dataclass(frozen=True, slots=True)
class Damage:
    """What happened to one file of a table, or, with the step "remove", that it is gone."""

    table: str
    file: str
    steps: tuple[Step, ...]

    def apply(self, storage: MemoryStorage) -> None:
        data = storage.read(self.file)
        for step in self.steps:
            if step.kind == "remove":
                storage.delete([self.file])
                return
            data = STEPS[step.kind](data, step)
        storage.put(self.file, data)

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "file": self.file, "steps": [list(step) for step in self.steps]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Damage:
        return cls(value["table"], value["file"], tuple(Step(*step) for step in value["steps"]))


def is_metadata(file: str) -> bool:
    """Whether a file holds no rows: damage here may cost the answer, but must not change which keys there are."""
    name = file.rpartition("/")[2]
    if name == "hoodie.properties":
        return False
    return file.startswith(".hoodie/") or name.startswith(".hoodie_partition_metadata")


def is_completed_instant(file: str) -> bool:
    folder, _, name = file.rpartition("/")
    return folder.endswith("/timeline") and "_" in name


def ask(storage: MemoryStorage, query: str) -> Any:
    """The answer of one query as a value to compare; the incremental one starts long before everything."""
    table = Table(MetaClient.open(storage))
    if query == "inspect":
        table.inspect.config()
        table.inspect.file_slices()
        return table.inspect.timeline(history=True).num_rows
    if query == "count":
        return table.scan().count()
    if query == "incremental":
        return keyed(table.incremental("20000101000000000").to_arrow())
    if query == "look_up":
        return keyed(table.scan(filter=f"{KEY} >= 'k0010' and {KEY} <= 'k0030' or {KEY} = 'k005'").to_arrow())
    if query == "tight":
        return keyed(table.scan(memory="64KB", options={"lakebed.batch.rows": "7"}).to_arrow())
    if query == "folders":
        return keyed(table.scan(options=NO_METADATA_TABLE).to_arrow())
    return keyed(table.scan(query=query).to_arrow())


def keyed(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in the order of their keys; a damaged value may well give a key twice."""
    return sorted(table.to_pylist(), key=lambda row: (str(row[KEY]), repr(row)))


def outcome(storage: MemoryStorage, query: str) -> tuple[Any, LakebedError | None]:
    """The answer, or the error; anything else that is raised is a defect and goes on to the caller."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        answer, error = ask(storage, query), None
    except LakebedError as raised:
        answer, error = None, raised
        assert str(raised).strip()
    took = time.monotonic() - started
    assert took < SLOW_SECONDS, f"{query} took {took:.1f} s"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MOST_KILOBYTES, f"{query} took {grown // 1024} MB"
    return answer, error


def check(damage: Damage, query: str, storage: MemoryStorage, right: Any) -> str:
    """Damage a copy of a table and ask it; "refused", "right" or, where nobody could notice, "other"."""
    copy: MemoryStorage = pickle.loads(pickle.dumps(storage))
    damage.apply(copy)
    answer, error = outcome(copy, query)
    if error is not None:
        return "refused"
    if answer == right:
        return "right"
    if is_metadata(damage.file) and query != "inspect":
        ours, theirs = (got if query == "count" else [row[KEY] for row in got] for got in (answer, right))
        assert ours == theirs, f"{query}: other keys than before"
    return "other"
