"""The identity of a process and whether it still runs, for names of files that must not outlive it.

    <host>.<machine>.<pid>.<start>     e.g. build-7.3f2a9c0d51e7b846.4711.88123

A pid alone is not enough: it is reused, and containers that share a host name have pids of their own. `machine` stands
for this boot of this kernel as seen from this pid namespace, `start` for the kernel tick at which the process began.
From all four a reader knows whether the process has ended. Where the kernel does not provide them (no /proc), `machine`
is empty and no process is ever taken for ended.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_TEXT = re.compile(r"([A-Za-z0-9_-]*)\.([0-9a-f]*)\.([0-9]{1,10})\.([0-9]{0,20})")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_ENDED = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one machine, unique across reboots where the kernel provides `machine` and `start`."""

    host: str
    machine: str
    pid: int
    start: str

    @classmethod
    def current(cls) -> Process:
        """The current process; looked up at each call, since a fork is another process."""
        pid = os.getpid()
        host = _NOT_IN_NAMES.sub("-", socket.gethostname())
        start = _start(pid)
        return cls(host, _machine() if start else "", pid, start or "")

    @classmethod
    def parse(cls, text: str) -> Process | None:
        match = _TEXT.fullmatch(text)
        return cls(match[1], match[2], int(match[3]), match[4]) if match else None

    def __str__(self) -> str:
        return f"{self.host}.{self.machine}.{self.pid}.{self.start}"

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this machine since it last booted."""
        return bool(self.machine and self.start) and self.machine == _machine()

    @property
    def is_gone(self) -> bool:
        """Whether this process has certainly ended; False for processes of other machines, where that is unknown."""
        return self.is_here and (_start(self.pid) != self.start or _has_ended(self.pid))


@cache
def _machine() -> str:
    """The boot and pid namespace of this process; empty where the kernel does not provide them."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{socket.gethostname()}/{boot}/{namespace}".encode()).hexdigest()[:16]


def _start(pid: int) -> str | None:
    """When a process began, in ticks since the boot; None when there is none."""
    fields = _stat(_PROC / str(pid) / "stat")
    return fields[19] if len(fields) > 19 else None


def _has_ended(pid: int) -> bool:
    """Whether no thread can run any more: a killed process that its parent has not waited for yet is still listed."""
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return True
    states = [_stat(thread / "stat")[:1] for thread in threads]
    return all(not state or state[0] in _ENDED for state in states)


def _stat(file: Path) -> list[str]:
    """The fields behind the command name, which may itself hold blanks and brackets."""
    try:
        return file.read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
