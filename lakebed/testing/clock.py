"""A clock for tests that is set by hand."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only by `advance`; it may also be set back, as real ones sometimes are."""

    ms: int = field(default=1_767_225_600_000)  # 2026-01-01T00:00:00Z

    def now_ms(self) -> int:
        return self.ms

    def advance(self, ms: int = 1) -> None:
        self.ms += ms
