"""A table in an S3 bucket: a real server (versitygw over a folder), real conditional puts, and writers that race."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.storage.open import open_storage

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
SERVER = Path(os.environ.get("LAKEBED_S3_SERVER", ROOT / ".cache" / "versitygw"))
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
RACERS = 3
Options = dict[str, str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    """A server with one bucket, `lake`; how to reach it."""
    if not SERVER.exists():
        pytest.fail(f"{SERVER} does not exist: `make s3-server` builds it")
    folder = tmp_path_factory.mktemp("s3")
    (folder / "buckets" / "lake").mkdir(parents=True)
    key, secret, port = "lakebed", secrets.token_hex(16), free_port()
    environment = {**os.environ, "ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
    command = [str(SERVER), "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder / "buckets")]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.05)
        yield {
            "endpoint": f"http://127.0.0.1:{port}",
            "allow_http": "true",
            "access_key_id": key,
            "secret_access_key": secret,
            "region": "us-east-1",
        }
    finally:
        server.terminate()
        server.wait(timeout=20)


def rows(*given: tuple[str, int, str, int]) -> pa.Table:
    columns = zip(*given, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def values(table: lakebed.Table) -> dict[str, int]:
    found = table.scan(columns=["id", "v"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


@pytest.mark.parametrize(("table_type", "log_format"), [("mor", "v2"), ("mor", "v1"), ("cow", "v1")])
def test_a_table_in_a_bucket(s3: Options, table_type: str, log_format: str) -> None:
    url = f"s3://lake/tables/{table_type}-{log_format}"
    with pytest.raises(lakebed.TableNotFound):
        lakebed.open(url, storage_options=s3)
    made = lakebed.create(
        url,
        SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type=table_type,
        log_format=log_format,
        num_buckets=2,
        storage_options=s3,
    )
    made.bulk_insert(rows(*((f"k{i}", 1, f"p{i % 2}", i) for i in range(20))))
    made.upsert(rows(("k1", 2, "p1", 100), ("k2", 0, "p0", -1), ("new", 1, "p2", 7)))
    made.delete(keys=[{"id": "k3", "p": "p1"}])
    table = lakebed.open(url, storage_options=s3)
    wanted = {f"k{i}": i for i in range(20) if i != 3} | {"k1": 100, "new": 7}
    assert values(table) == wanted, "an older version of k2 loses"
    assert table.scan(filter="id = 'k1'").to_arrow()["v"].to_pylist() == [100]
    assert table.check() == []
    storage = open_storage(url, s3)
    left = [
        info.path for folder in (".hoodie/.temp", ".hoodie/.heartbeat") for info in storage.list(folder, recursive=True)
    ]
    assert left == []
    table.update(set={"v": "v + 1"}, where="p = 'p2'")
    assert values(table) == wanted | {"new": 8}


def run_together(code: str, *arguments: str) -> list[str]:
    """Processes that run the same program, told apart by a number; what each prints."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(RACERS)
    ]
    answers = []
    for racer in racers:
        out, problems = racer.communicate(timeout=300)
        assert racer.returncode == 0, problems[-3000:]
        answers.append(out)
    return answers


RACE = """
import json, sys, time
from lakebed.storage.open import open_storage
number, options = int(sys.argv[1]), json.loads(sys.argv[2])
storage = open_storage("s3://lake/race", options)
storage.put(f"ready/{number}", b"")
while len(list(storage.list("ready"))) < 3:
    time.sleep(0.01)
print(json.dumps([i for i in range(60) if storage.put_if_absent(f"names/{i:03d}", f"racer {number}".encode())]))
"""


def test_a_name_is_created_exactly_once(s3: Options) -> None:
    won = [json.loads(text) for text in run_together(RACE, json.dumps(s3))]
    assert sorted(i for mine in won for i in mine) == list(range(60)), "every name has one winner"
    storage = open_storage("s3://lake/race", s3)
    for number, mine in enumerate(won):
        assert all(storage.read(f"names/{i:03d}") == f"racer {number}".encode() for i in mine)


WRITE = """
import json, sys
import pyarrow as pa
import lakebed
number, options = int(sys.argv[1]), json.loads(sys.argv[2])
several = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
table = lakebed.open("s3://lake/shared", storage_options=options, options=several)
conflicts = 0
for i in range(4):
    data = pa.table({"id": [f"w{number}-{i}", "shared"], "ts": [1, 10 * i + number], "p": ["p", "p"], "v": [i, number]})
    while True:
        try:
            table.upsert(data)
            break
        except lakebed.ConflictError:
            conflicts += 1
print(json.dumps(conflicts))
"""


def test_writers_of_several_processes(s3: Options) -> None:
    """Optimistic writers that meet in the same file groups: each commit is whole, none is lost."""
    table = lakebed.create(
        "s3://lake/shared", SCHEMA, record_key="id", partition_by="p", ordering="ts", num_buckets=1, storage_options=s3
    )
    table.insert(rows(("shared", 0, "p", -1)))
    run_together(WRITE, json.dumps(s3))
    wanted = {f"w{number}-{i}": i for number in range(RACERS) for i in range(4)}
    table.refresh()
    assert values(table) == wanted | {"shared": RACERS - 1}
    timeline = table.inspect.timeline().to_pylist()
    done = [row for row in timeline if row["action"] == "deltacommit" and row["state"] == "completed"]
    assert len(done) == 1 + RACERS * 4
    assert len({row["completion"] for row in timeline if row["completion"]}) == len(timeline)
    assert table.check() == []
