"""`make bench`: named workloads, each a list of ratios against a floor or a peer in the same run.

python -m benchmarks.run [WORKLOAD...] [--small]

Workloads that need Java and other engines, or many gigabytes, run only when they are named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks import (
    arrow_peers,
    avro_codec,
    compaction_memory,
    history,
    parquet_footer,
    read_merge,
    services,
    services_bytes,
    services_hudi,
    spark_peers,
    stream_memory,
)
from benchmarks.claims import Claims

WORKLOADS: dict[str, Callable[[bool], Claims]] = {
    "arrow": lambda small: arrow_peers.run(200_000, 1) if small else arrow_peers.run(),
    "avro_codec": lambda small: avro_codec.run(20_000) if small else avro_codec.run(),
    "compaction_memory": lambda small: compaction_memory.run((0.05,), (4, 16)) if small else compaction_memory.run(),
    "history": lambda small: history.run((1_000, 10_000)) if small else history.run(),
    "history_large": lambda small: history.run((10_000, 1_000_000 if small else 10_000_000)),
    "parquet_footer": lambda small: parquet_footer.run(20) if small else parquet_footer.run(),
    "read_merge": lambda small: read_merge.run(200_000, 10_000, 3) if small else read_merge.run(),
    "services": lambda small: services.run(100_000, 1) if small else services.run(),
    "services_bytes": lambda small: services_bytes.run(20_000, 10) if small else services_bytes.run(),
    "services_hudi": lambda small: services_hudi.run(100_000, 1) if small else services_hudi.run(),
    "stream": lambda small: stream_memory.run(2.0, 512 << 20) if small else stream_memory.run(),
    "spark": lambda small: spark_peers.run(200_000, 1) if small else spark_peers.run(),
}
ONLY_BY_NAME = {"arrow", "compaction_memory", "history_large", "services_hudi", "spark", "stream"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--small", action="store_true", help="little data: to see that they run, not how fast")
    given = parser.parse_args()
    unknown = set(given.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    missed = 0
    for name in given.workloads or [name for name in WORKLOADS if name not in ONLY_BY_NAME]:
        table = Table(title=name, title_justify="left")
        for heading in ("claim", "measured", "target"):
            table.add_column(heading, justify="left" if heading == "claim" else "right")
        for what, measured, target in WORKLOADS[name](given.small):
            good = measured <= target
            missed += not good
            table.add_row(what, f"[{'green' if good else 'red'}]{measured:.3f}[/]", f"<= {target:g}")
        Console().print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
