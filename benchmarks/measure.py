"""Measuring in a child process: CPU seconds of the best of several runs, and peak memory above the imports.

Each measurement gets a fresh process pinned to one core (or to as many as asked for), so that runs neither help nor
disturb each other, and the peak counts what the work took, not what loading libraries took.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measured:
    """The best CPU time of several runs, the peak memory above the start in bytes, and what the work returned."""

    cpu: float
    wall: float
    peak: int
    result: Any


def measure(work: Callable[..., Any], *args: Any, repeat: int = 5, cores: int = 1) -> Measured:
    """Run `work(*args)` several times in a process of its own, on one core unless told."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_child, (work, args, repeat, cores))


def _child(work: Callable[..., Any], args: tuple[Any, ...], repeat: int, cores: int) -> Measured:
    import pyarrow as pa

    import lakebed  # noqa: F401 - imports are not part of the measurement

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-cores:]))
    pa.set_cpu_count(cores)
    start = reset_peak()
    best_cpu = best_wall = float("inf")
    result: Any = None
    for _ in range(repeat):
        cpu, wall = time.process_time(), time.perf_counter()
        result = work(*args)
        best_cpu = min(best_cpu, time.process_time() - cpu)
        best_wall = min(best_wall, time.perf_counter() - wall)
    return Measured(best_cpu, best_wall, max(0, status("VmHWM") - start), result)


def reset_peak() -> int:
    """Forget the peak of the imports; what `getrusage` reports would even include the parent's."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status("VmRSS")


def status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")
