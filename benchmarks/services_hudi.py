"""Compactions of lakebed beside those of real Hudi: the same rows, each engine on a table of its own making.

    python -m benchmarks.services_hudi [--rows N] [--repeat N] [--folder DIR]

lakebed runs as plain Python in threads, Hudi in a Spark session of its own (`services_child.py`, `.venv-hudi`), after
each other. Planning counts on both sides; starting Python or the JVM, and a first run on a tiny table, do not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.claims import Claims, report
from benchmarks.measure import measure
from benchmarks.orders import ROWS, UPSERTS
from benchmarks.services import build, bytes_of, compacted
from benchmarks.spark_peers import BUNDLES, make_rows, python_of

CHILD = Path(__file__).with_name("services_child.py")


def by_hudi(home: Path, rows: int, repeat: int) -> dict[str, Any]:
    """What the child measured."""
    data = home / "data"
    data.mkdir()
    make_rows(data, rows, UPSERTS)
    job = {
        "home": str(home / "hudi"),
        "data": str(data),
        "upserts": UPSERTS,
        "repeats": repeat,
        "memory": "4g",
        "bundle": BUNDLES["hudi"],
    }
    (home / "hudi").mkdir()
    command = [python_of("hudi"), str(CHILD), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def run(rows: int = ROWS, repeat: int = 2, *, folder: Path | None = None) -> Claims:
    """(what, measured, target) of every claim; smaller is better."""
    home = Path(tempfile.mkdtemp(prefix="lakebed-services-", dir=folder))
    claims: Claims = []
    try:
        root = build(home / "lakebed", rows)
        ours = {
            strategy: measure(compacted, str(root), strategy, repeat + 1, repeat=1, cores=2).result
            for strategy in ("full", "log")
        }
        theirs = by_hudi(home, rows, repeat)
        for strategy, mine in ours.items():
            best = min(theirs[strategy])
            size = theirs["bytes"][strategy]
            print(f"{strategy}: {mine.wall:.2f} s, {mine.result / 1e6:.0f} MB written; {theirs['version']}: ", end="")
            print(f"{best:.2f} s, {size / 1e6:.0f} MB written; {best / mine.wall:.1f} x", flush=True)
            claims.append((f"{strategy} compaction: wall / Hudi's", mine.wall / best, 1 / 5))
            claims.append((f"{strategy} compaction: bytes written / Hudi's", mine.result / size, 1.0))
        claims.append(("base files and logs: bytes / Hudi's", bytes_of(root) / theirs["bytes"]["before"], 1.0))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return claims


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    return report(run(given.rows, given.repeat, folder=given.folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
