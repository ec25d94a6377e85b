"""Tables that lakebed filled at random and took to another version: everybody reads them, and goes on with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import lakebed

from .checks import first
from .client import HudiPeer
from .hudi_turn import run_turn
from .kinds import Kind, create_arguments
from .lakebed_workload import LakebedWorkload
from .rs_client import HudiRs
from .write_checks import WriteJudge
from .written_model import WrittenModel


def filled(path: Path, kind: Kind, seed: int) -> LakebedWorkload:
    """A table after some random writes, the last of them an upsert."""
    table = lakebed.create(path, kind.schema(), **create_arguments(kind))
    work = LakebedWorkload(kind, seed, table, WrittenModel(kind))
    work.load()
    for name in (kind.operation, "delete_keys", "upsert"):
        work.step(name)
    return work


def complaint_of(
    hudi: HudiPeer, rs: HudiRs, path: Path, work: LakebedWorkload, now: Kind, *, services: Sequence[str] = ()
) -> str:
    """What is wrong with a table that is of another kind now: all read it, Hudi writes on, and lakebed after it."""
    model = work.model
    model.kind = work.kind = now
    judge = WriteJudge(hudi, rs, path, now, model, work.instants)

    def complaints() -> Iterator[str]:
        yield from judge.everybody()
        work.now += 10
        rows = list({now.record_key(row): row for row in work.mixed(late=False, marks=False)}.values())
        turn = run_turn(hudi, path, now, work.table_of(rows), "upsert", services=services)
        work.instants.append(turn.write)
        model.upsert(rows)
        if turn.compacted:
            model.settle(model.rows)
        yield from judge.everybody()
        work.step("upsert")
        yield from judge.everybody()

    return first(complaints())
