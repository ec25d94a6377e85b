"""Tables of every kind that lakebed writes: real Hudi and hudi-rs read them, Hudi writes on, lakebed reads that back.

    round   lakebed writes ──► everybody reads ──► Hudi upserts or deletes, compacts, cleans ──► everybody reads

LAKEBED_INTEROP_WRITE_SECONDS   how long to go on with further kinds (180); at least `LEAST_KINDS` are done
LAKEBED_INTEROP_SEED            which rows and kinds (1; the full run takes the time of day)
LAKEBED_INTEROP_KIND            only the kind of this number, or of these (5,12-19), to repeat a failure
LAKEBED_INTEROP_ROUNDS          how many rounds (2; 10 in the full run)
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest

import lakebed

from .checks import first
from .client import HudiPeer, PeerDied
from .hudi_turn import run_turn
from .kinds import FACTORS, Kind, covering, create_arguments, possible_kinds
from .lakebed_workload import LakebedWorkload
from .rs_client import HudiRs
from .write_checks import WriteJudge
from .written_model import WrittenModel

LEAST_KINDS = 6


def judge_kind(hudi: HudiPeer, rs: HudiRs, path: Path, kind: Kind, seed: int, rounds: int) -> str:
    """One table from its making to the last round; the first complaint, with the story so far."""
    lakebed.create(path, kind.schema(), **create_arguments(kind))
    table = lakebed.open(path, options={"hoodie.logfile.data.block.format": kind.blocks})
    model = WrittenModel(kind)
    work = LakebedWorkload(kind, seed, table, model)
    judge = WriteJudge(hudi, rs, path, kind, model, work.instants)
    trail: list[str] = []
    cleaned: list[bool] = []

    def complaints() -> Iterator[str]:
        trail.append(work.load())
        trail.append(work.step(kind.operation))
        for number in range(rounds):
            since = model.writes
            for _ in range(2):
                trail.append(work.step())
                yield from judge.ours()
            yield from judge.everybody()
            yield from judge.incremental(since)
            since = model.writes
            yield from hudis_turn(number)
            yield from judge.everybody()
            yield from judge.incremental(since)
        trail.append(work.step("upsert"))
        yield from judge.everybody()
        if rounds >= 4 and not any(cleaned):
            yield "Hudi found nothing to clean in all rounds"
        wrong = [finding for finding in lakebed.open(path).check() if finding.severity == "error"]
        yield "\n".join(map(str, wrong))

    def hudis_turn(number: int) -> Iterator[str]:
        work.now += 10
        deletes = number > 0 and work.rng.random() < 0.3
        rows = list({model.place(row): row for row in work.mixed(late=False, marks=False)}.values())
        if kind.is_global:
            rows = list({kind.record_key(row): row for row in rows}.values())
        verb = "delete" if deletes else "upsert"
        services = ("compact", "clean") if number % 2 == 0 else ()
        trail.append("+".join((f"Hudi's {verb}", *services)))
        before = judge.shown_by_hudi() if services else {}
        turn = run_turn(hudi, path, kind, work.table_of(rows), verb, services=services)
        work.instants.append(turn.write)
        if turn.compacted:
            model.settle(before)
        if deletes:
            places = [there for row in rows if (there := model.where_is(row)) is not None]
            model.delete(places)
        else:
            model.upsert(rows)
        if turn.compacted:
            model.settle(model.rows)
        if services and any(file_slice["logs"] for file_slice in lakebed.open(path).inspect.file_slices().to_pylist()):
            yield "Hudi left logs uncompacted"
        cleaned.append(turn.cleaned)

    try:
        complaint = first(complaints())
    except PeerDied:
        raise
    except Exception as error:
        complaint = f"{type(error).__name__}: {error}\n{getattr(error, 'trace', '')[:3000]}"
    return complaint and f"{complaint}\n  after: {', '.join(trail)}\n  table: {path}"


def chosen_numbers(text: str | None) -> set[int] | None:
    if text is None:
        return None
    ends = [part.partition("-") for part in text.split(",")]
    return {
        number
        for requested_time, _, end in ends
        for number in range(int(requested_time), int(end or requested_time) + 1)
    }


def run_kinds(
    hudi: HudiPeer, folder: Path, seed: int, seconds: float, rounds: int, terminal: pytest.CaptureFixture[str]
) -> int:
    """Kinds until the time is over; how many, and all their complaints at the end."""
    only = chosen_numbers(os.environ.get("LAKEBED_INTEROP_KIND"))
    rounds = int(os.environ.get("LAKEBED_INTEROP_ROUNDS", rounds))
    kinds = covering(seed)
    deadline = time.monotonic() + seconds
    done, failures = 0, []
    with HudiRs(folder) as rs:
        for number, kind in enumerate(kinds):
            if only is not None and number not in only:
                continue
            if only is None and done >= LEAST_KINDS and time.monotonic() > deadline:
                break
            begun = time.monotonic()
            with terminal.disabled():
                print(f"\nseed {seed} kind {number} of {len(kinds)}: {kind}", end="", flush=True)
            complaint = judge_kind(hudi, rs, folder / f"kind{number}", kind, seed, rounds)
            done += 1
            with terminal.disabled():
                print(f" ({time.monotonic() - begun:.0f} s)", end="", flush=True)
                print(f"\n  FAILED: {complaint[:5000]}" if complaint else "", end="", flush=True)
            if complaint:
                again = f"LAKEBED_INTEROP_SEED={seed} LAKEBED_INTEROP_KIND={number} LAKEBED_INTEROP_ROUNDS={rounds}"
                failures.append(f"{kind} (again with {again}, and pytest -k write_matrix):\n{complaint}")
    assert not failures, f"{len(failures)} of {done} kinds:\n" + "\n\n".join(failures)
    return done


@pytest.mark.interop
def test_kinds_within_a_budget(hudi: HudiPeer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("LAKEBED_INTEROP_SEED", "1"))
    seconds = float(os.environ.get("LAKEBED_INTEROP_WRITE_SECONDS", "180"))
    done = run_kinds(hudi, tmp_path, seed, seconds, 2, capsys)
    assert done >= LEAST_KINDS or "LAKEBED_INTEROP_KIND" in os.environ


@pytest.mark.interop
@pytest.mark.slow
def test_the_whole_matrix(hudi: HudiPeer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every two choices of every two factors meet in some table."""
    seed = int(os.environ.get("LAKEBED_INTEROP_SEED", str(int(time.time()))))
    done = run_kinds(hudi, tmp_path, seed, float("inf"), 10, capsys)
    assert done == len(covering(seed)) or "LAKEBED_INTEROP_KIND" in os.environ


@pytest.mark.parametrize("seed", [1, 7])
def test_any_two_choices_meet(seed: int) -> None:
    """Needs no peer: what `covering` is for, counted in another way."""
    names = list(FACTORS)
    chosen, possible = ([astuple(kind) for kind in kinds] for kinds in (covering(seed), possible_kinds()))
    assert chosen == [astuple(kind) for kind in covering(seed)]
    for one, other in itertools.combinations(range(len(names)), 2):
        met = {(values[one], values[other]) for values in chosen}
        could = {(values[one], values[other]) for values in possible}
        assert met == could, f"{names[one]} and {names[other]}"
