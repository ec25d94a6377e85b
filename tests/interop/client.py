"""`HudiPeer`: real Hudi as an object. Starts `hudi_peer.py` under the peer's Python and speaks its JSON lines.

The peer must never hang a test run or outlive it: every request has a deadline, the child leads a process group of
its own (python, the JVM and its helpers), and leaving the context ends the group whatever state it is in.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
PEER_SCRIPT = Path(__file__).with_name("hudi_peer.py")
START_SECONDS = 600.0  # the first start downloads the Hudi bundle
REQUEST_SECONDS = float(os.environ.get("LAKEBED_INTEROP_REQUEST_SECONDS", "180"))


def peer_python() -> Path:
    """The Python that holds pyspark and the `hudi` wheel; missing means the run is not set up, which is an error."""
    python = Path(os.environ.get("LAKEBED_HUDI_PYTHON", ROOT / ".venv-hudi" / "bin" / "python"))
    if not python.exists():
        raise PeerError(f"{python} does not exist: run `make interop`, which builds it, or set LAKEBED_HUDI_PYTHON")
    return python


class PeerError(Exception):
    """Real Hudi refused or failed a request; `trace` is its stack."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class PeerDied(PeerError):
    """The child is gone or did not answer in time; its log says why."""


class HudiPeer:
    """One running peer: `with HudiPeer(folder) as hudi: hudi.write(...); hudi.read(...)`."""

    def __init__(self, folder: Path, *, bundle: str | None = None, memory: str = "2g") -> None:
        self.folder = folder
        self.log = folder / "peer.log"
        self._bundle = bundle or os.environ.get("LAKEBED_HUDI_BUNDLE")
        self._memory = memory
        self._numbers = itertools.count(1)
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._child: subprocess.Popen[str] | None = None
        self.spark_version = ""

    def __enter__(self) -> HudiPeer:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [
            str(peer_python()),
            str(PEER_SCRIPT),
            "--folder",
            str(self.folder / "spark"),
            "--memory",
            self._memory,
        ]
        if self._bundle:
            command += ["--bundle", self._bundle]
        with self.log.open("a") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self.spark_version = self._await(0, START_SECONDS)["spark"]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ask the child to stop, then make sure of it."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            if child.stdin is not None:
                child.stdin.write(json.dumps({"id": -1, "op": "stop"}) + "\n")
                child.stdin.close()
            child.wait(timeout=15)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.1)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=15)

    # -- requests

    def write(
        self,
        path: Path | str,
        rows: pa.Table,
        options: Mapping[str, str],
        *,
        mode: str = "append",
        timeout: float = REQUEST_SECONDS,
    ) -> None:
        """Write `rows` with Hudi's datasource; the operation is an option like any other."""
        parcel = self._parcel("rows", "parquet")
        pq.write_table(rows, parcel)
        try:
            self.request("write", timeout, path=str(path), rows=str(parcel), options=dict(options), mode=mode)
        finally:
            parcel.unlink()

    def read(
        self,
        path: Path | str,
        options: Mapping[str, str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> dict[str, Any]:
        """What Hudi reads, as {columns, types, count, rows}: the form of the golden tables' expected answers."""
        return self._fetch(
            "read", timeout, path=str(path), options=dict(options or {}), columns=columns and list(columns), where=where
        )

    def sql(
        self, text: str, *, conf: Mapping[str, str] | None = None, timeout: float = REQUEST_SECONDS
    ) -> dict[str, Any]:
        """A statement (DDL, MERGE INTO, CALL) under settings that hold for it alone, and its rows."""
        return self._fetch("sql", timeout, text=text, conf=dict(conf or {}))

    def view(self, name: str, rows: pa.Table, timeout: float = REQUEST_SECONDS) -> None:
        """A temporary view for statements to select from; its file lives as long as the peer's folder."""
        parcel = self._parcel(f"view-{name}", "parquet")
        pq.write_table(rows, parcel)
        self.request("view", timeout, name=name, rows=str(parcel))

    def call(
        self, procedure: str, path: Path | str, options: Mapping[str, str] | None = None, **arguments: str
    ) -> dict[str, Any]:
        """`CALL run_compaction(path => ..., op => 'run', options => 'k=v,...')` and its relatives."""
        given = {"path": str(path), **arguments}
        if options:
            given["options"] = ",".join(f"{key}={value}" for key, value in options.items())
        text = ", ".join(f"{key} => '{value}'" for key, value in given.items())
        return self.sql(f"call {procedure}({text})")

    def request(self, op: str, timeout: float = REQUEST_SECONDS, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        if self._child is None or self._child.stdin is None:
            raise PeerDied("the peer is not running")
        number = next(self._numbers)
        try:
            self._child.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
            self._child.stdin.flush()
        except OSError as error:
            raise PeerDied(f"the peer is gone: {self._log_tail()}") from error
        return self._await(number, timeout)

    # -- inside

    def _fetch(self, op: str, timeout: float, **arguments: Any) -> dict[str, Any]:
        parcel = self._parcel("answer", "json")
        try:
            self.request(op, timeout, out=str(parcel), **arguments)
            answer: dict[str, Any] = json.loads(parcel.read_text())
        finally:
            parcel.unlink(missing_ok=True)
        return answer

    def _parcel(self, stem: str, suffix: str) -> Path:
        return self.folder / f"{stem}-{next(self._numbers)}.{suffix}"

    def _listen(self) -> None:
        child = self._child
        if child is not None and child.stdout is not None:
            for line in child.stdout:
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def _await(self, number: int, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            try:
                answer = self._answers.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                self.close()
                raise PeerDied(f"no answer within {timeout:.0f} s: {self._log_tail()}") from None
            if answer is None:
                self.close()
                raise PeerDied(f"the peer ended: {self._log_tail()}")
            if answer["id"] != number:
                continue
            if not answer["ok"]:
                raise PeerError(answer["error"], answer["trace"])
            return answer

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(no log)"
