"""`table.services`: upkeep by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakebed.runner import Runner
from lakebed.services.upgrade import downgrade, upgrade
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control


@dataclass(frozen=True, slots=True)
class Services:
    """Upkeep of one table. Get it as `table.services`."""

    client: MetaClient
    control: Control
    runner: Runner
    memory: int
    done: Callable[[], object]
    """Called after each change, so that the table object sees it."""

    def upgrade(self, to: int = 10) -> None:
        """Give the table a higher version: native logs need version 10."""
        upgrade(self.client, self.control, to)
        self.done()

    def downgrade(self, to: int = 9) -> None:
        """Give the table a lower version, for programs that do not know version 10.

        Slices with native logs are compacted and the logs removed, so times before this cannot be travelled to.
        """
        downgrade(self.client, self.control, to, self.runner, memory=self.memory)
        self.done()
