"""How many file groups are written at once, and what each may take of the memory and the cores.

    memory ──► a share per lane ──► rows that wait to be encoded  +  an unfinished row group  +  the merge

Lanes are threads here and tasks on Spark; the code inside a lane does not know.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from lakebed.config.write_options import WriteOptions
from lakebed.runner import Runner
from lakebed.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Tasks side by side: whose memory is shared by `count`, and which have a core to spare for encoding or not."""

    runner: Runner
    count: int = 1
    spare_cores: bool = False

    @classmethod
    def of(cls, runner: Runner, groups: int, most: int) -> Parallelism:
        """As many tasks at once as there are cores and groups, and `most` where the memory has no share for more.

        Runners other than our threads know themselves how much they do at once: there the memory is for one task.
        """
        if not runner.shares_memory:
            return cls(runner)
        cores = os.cpu_count() or 1
        threads = max(1, min(runner.threads or cores, groups, most))
        return cls(runner.limited_to(threads), threads, threads < cores)

    def write_buffer(self, options: WriteOptions, most: int, storage: Storage) -> int:
        """How many bytes of rows may wait to be encoded.

        None where files are local and every core has its task: to hand rows to another thread then costs a tenth.
        """
        return min(options.write_buffer, most) if self.spare_cores or not storage.is_local else 0
