"""Tables that real Hudi makes by a random workload, read by lakebed and by Hudi, judged by a dictionary.

LAKEBED_INTEROP_SECONDS   how long to go on making tables (240)
LAKEBED_INTEROP_SEED      which ones (1; the full run takes the time of day)
LAKEBED_INTEROP_TABLE     only the table of this number, to repeat a failure
LAKEBED_INTEROP_SHAPE     only tables whose label has all these words ("mor event bucket")
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .checks import Judge, first
from .client import HudiPeer, PeerDied
from .hudi_writer import HudiWriter
from .model import Model
from .operations import AddColumn, Operation, Service, TableShape, Write
from .workload import Workload, covering_shapes

pytestmark = pytest.mark.interop
FULL_SECONDS = "1800"


def told(operation: Operation) -> str:
    if isinstance(operation, Write):
        return "+".join((f"{operation.kind}({len(operation.rows)})", *operation.riders))
    return operation.kind if isinstance(operation, Service) else f"add {operation.name} {operation.kind}"


def judge_table(hudi: HudiPeer, path: Path, shape: TableShape, seed: int) -> str:
    """Make one table and ask everything; the first complaint, with the story so far."""
    model = Model(shape)
    writer = HudiWriter(hudi, path, shape)
    judge = Judge(hudi, str(path), model, writer.instants)
    rng = random.Random(seed)
    trail: list[str] = []

    def complaints() -> Iterator[str]:
        for operation in Workload(shape, seed).operations():
            trail.append(told(operation))
            happened = writer.run(operation)
            model.apply(happened)
            judge.note_history()
            if isinstance(operation, AddColumn):
                continue
            service = isinstance(operation, Service) or bool(operation.riders)
            yield from judge.both_snapshots() if service or rng.random() < 0.3 else judge.lakebed_snapshot()
        trail.append("(end)")
        yield from judge.both_snapshots()
        yield from judge.filters(rng)
        yield from judge.read_optimized()
        if not writer.cleaned:
            known = [write for write in range(1, model.writes) if model.hudi_incremental_known(write)]
            yield from judge.incremental(rng.choice(known)) if known else ()
            yield from judge.as_of(rng.randrange(1, model.writes))

    complaint = first(complaints())
    return complaint and f"{complaint}\n  after: {', '.join(trail)}\n  table: {path}"


def run_tables(hudi: HudiPeer, folder: Path, seed: int, seconds: float, terminal: pytest.CaptureFixture[str]) -> None:
    """Tables until the time is over; all their complaints at the end."""
    only = os.environ.get("LAKEBED_INTEROP_TABLE")
    words = os.environ.get("LAKEBED_INTEROP_SHAPE", "").split()
    deadline = time.monotonic() + seconds
    made, failures = [], []
    for number, shape in enumerate(covering_shapes(seed)):
        if only is not None and number != int(only):
            continue
        if not set(words) <= set(shape.label.split("-")):
            continue
        with terminal.disabled():
            print(f"\nseed {seed} table {number}: {shape.label}", end="", flush=True)
        try:
            complaint = judge_table(hudi, folder / f"table{number}", shape, seed * 1000 + number)
        except PeerDied:
            raise
        except Exception as error:
            complaint = f"{type(error).__name__}: {error}"
        made.append(shape.label)
        if complaint:
            again = f"LAKEBED_INTEROP_SEED={seed} LAKEBED_INTEROP_TABLE={number}"
            failures.append(f"{shape.label} (again with {again}):\n{complaint}")
        if only is not None or time.monotonic() > deadline:
            break
    assert not failures, f"{len(failures)} of {len(made)} tables:\n" + "\n\n".join(failures)


def test_random_tables(hudi: HudiPeer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("LAKEBED_INTEROP_SEED", "1"))
    run_tables(hudi, tmp_path, seed, float(os.environ.get("LAKEBED_INTEROP_SECONDS", "240")), capsys)


@pytest.mark.slow
def test_many_random_tables(hudi: HudiPeer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("LAKEBED_INTEROP_SEED", str(int(time.time()))))
    run_tables(hudi, tmp_path, seed, float(os.environ.get("LAKEBED_INTEROP_FULL_SECONDS", FULL_SECONDS)), capsys)
