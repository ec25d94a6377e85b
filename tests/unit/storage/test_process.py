"""Whether a process is gone: certain about those of this machine, silent about all others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from lakebed.storage import process
from lakebed.storage.local import owner_of_temporary, temporary_name
from lakebed.storage.process import Process


def test_the_text_form_comes_back() -> None:
    here = Process.current()
    assert Process.parse(str(here)) == here
    assert here.pid == os.getpid()
    assert here.is_here
    assert not here.is_gone
    for text in ("", "x", "host.m.1", "a.b.c.d.e", f"{here}:9", "h.zz.1.2", "h.ab.-1.2"):
        assert Process.parse(text) is None


def test_a_fork_is_another_process_and_is_gone_when_it_was_killed() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(Process.current()).encode())
        signal.pause()
        os._exit(0)
    found = Process.parse(os.read(read, 1000).decode())
    os.close(read)
    os.close(write)
    assert found is not None
    assert found.pid == child
    assert not found.is_gone
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert found.is_gone, "a zombie: nobody has collected it yet, but nothing of it runs"
    os.waitpid(child, 0)
    assert found.is_gone


def test_a_pid_that_came_round_again() -> None:
    here = Process.current()
    assert replace(here, start=str(int(here.start) - 1)).is_gone


def test_nobody_speaks_for_another_machine() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    elsewhere = replace(Process.current(), pid=child.pid, machine="0123456789abcdef")
    assert not elsewhere.is_gone
    assert not elsewhere.is_here


def test_without_proc_nobody_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    dead = replace(Process.current(), start="1")
    assert dead.is_gone
    process._machine.cache_clear()
    monkeypatch.setattr(process, "_PROC", tmp_path)
    try:
        assert not dead.is_gone
        unknown = Process.current()
        assert (unknown.machine, unknown.start) == ("", "")
        assert Process.parse(str(unknown)) == unknown
        assert not unknown.is_gone
    finally:
        process._machine.cache_clear()


def test_temporaries_tell_whose_they_are() -> None:
    name = temporary_name()
    assert owner_of_temporary(name) == Process.current()
    assert name != temporary_name()
    assert owner_of_temporary("lakebed-0123") is None
    assert owner_of_temporary(name.removeprefix("lakebed-")) is None
