"""How many file groups are written at once, and the share of memory and cores of each.

    memory ──► a share per task ──► rows queued for encoding  +  an unfinished row group  +  the merge

A task is a thread in this process or a Spark task; the code of a task is the same for both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from lakebed.config.write_options import WriteOptions
from lakebed.runner import Runner
from lakebed.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Tasks that run at once: `count` tasks share the memory, and with `spare_cores` cores are left for encoding."""

    runner: Runner
    count: int = 1
    spare_cores: bool = False

    @classmethod
    def of(cls, runner: Runner, groups: int, most: int) -> Parallelism:
        """As many tasks at once as there are cores and groups, and at most `most`, which the memory allows.

        Runners other than our threads decide themselves how many tasks run at once: there the memory is for one task.
        """
        if not runner.shares_memory:
            return cls(runner)
        cores = os.cpu_count() or 1
        threads = max(1, min(runner.threads or cores, groups, most))
        return cls(runner.limited_to(threads), threads, threads < cores)

    def write_buffer(self, options: WriteOptions, most: int, storage: Storage) -> int:
        """How many bytes of rows may be queued for encoding.

        Zero where files are local and every core has a task: passing rows to another thread then costs 10 % more time.
        """
        return min(options.write_buffer, most) if self.spare_cores or not storage.is_local else 0
