"""`HudiRs`: the hudi-rs child process, asked one table at a time."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from .client import peer_python
from .rows import Answer, from_arrow

SCRIPT = Path(__file__).with_name("hudi_rs.py")


class HudiRs:
    """One running hudi-rs: `with HudiRs(folder) as rs: rs.read(path)`."""

    def __init__(self, folder: Path) -> None:
        self._out = folder / "answer.arrow"
        self._log = folder / "hudi-rs.log"
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> HudiRs:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def read(self, path: Path) -> Answer | str:
        """The snapshot, or the error; a crash of the native reader is an error of this table only."""
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"path": str(path), "out": str(self._out)}) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            self._stop()
            return f"hudi-rs ended before it answered: {self._log.read_text(errors='replace')[-1000:]}"
        error = json.loads(line)["error"]
        if error is not None:
            return str(error)
        with pa.OSFile(str(self._out)) as source:
            return from_arrow(pa.ipc.open_file(source).read_all())

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            self._child = subprocess.Popen(
                [str(peer_python()), str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self._child

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(OSError):
                if child.stdin is not None:
                    child.stdin.close()
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
