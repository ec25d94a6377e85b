"""`make bench`: named workloads, each a list of ratios against a floor or a peer in the same run.

python -m benchmarks.run [WORKLOAD...] [--small]

Workloads that need Java and other engines, or many gigabytes, run only when they are named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks import (
    arrow_peers,
    compaction_memory,
    history,
    read_merge,
    services,
    services_bytes,
    services_hudi,
    spark_peers,
    stream_memory,
)

Claims = list[tuple[str, float, float]]
WORKLOADS: dict[str, Callable[[bool], Claims]] = {
    "arrow": lambda small: arrow_peers.run(200_000, 1) if small else arrow_peers.run(),
    "compaction_memory": lambda small: compaction_memory.run((0.05,), (4, 16)) if small else compaction_memory.run(),
    "history": lambda small: history.run((1_000, 10_000)) if small else history.run(),
    "history_large": lambda small: history.run((10_000, 1_000_000 if small else 10_000_000)),
    "read_merge": lambda small: read_merge.run(200_000, 10_000, 3) if small else read_merge.run(),
    "services": lambda small: services.run(100_000, 1) if small else services.run(),
    "services_bytes": lambda small: services_bytes.run(20_000, 10) if small else services_bytes.run(),
    "services_hudi": lambda small: services_hudi.run(100_000, 1) if small else services_hudi.run(),
    "stream": lambda small: stream_memory.run(2.0, 512 << 20) if small else stream_memory.run(),
    "spark": lambda small: spark_peers.run(200_000, 1) if small else spark_peers.run(),
}
ONLY_BY_NAME = {"arrow", "compaction_memory", "history_large", "services_hudi", "spark", "stream"}


def main(arguments: list[str]) -> int:
    small = "--small" in arguments
    names = [name for name in arguments if not name.startswith("--")] or [
        name for name in WORKLOADS if name not in ONLY_BY_NAME
    ]
    unknown = set(names) - set(WORKLOADS)
    if unknown:
        print(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
        return 2
    missed = 0
    for name in names:
        table = Table(title=name, title_justify="left")
        for heading in ("claim", "measured", "target"):
            table.add_column(heading, justify="left" if heading == "claim" else "right")
        for what, measured, target in WORKLOADS[name](small):
            good = measured <= target
            missed += not good
            table.add_row(what, f"[{'green' if good else 'red'}]{measured:.3f}[/]", f"<= {target:g}")
        Console().print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
