"""Which steps of a service a test kills it at: some, spread over all; every one with LAKEBED_ALL_KILLS=1."""

from __future__ import annotations

import os

EVERY_STEP = os.environ.get("LAKEBED_ALL_KILLS") == "1"


def some_steps(total: int, wanted: int = 8) -> list[int]:
    """Step numbers from 1 to `total`, the last one always among them."""
    if EVERY_STEP or total <= wanted:
        return list(range(1, total + 1))
    return sorted({*(1 + round(i * (total - 1) / (wanted - 1)) for i in range(wanted)), total})
