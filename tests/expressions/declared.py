"""Differences from Spark that are meant: where lakebed fails or refuses rather than follow it.

A difference that is not listed here is a fault of one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.expressions.compare import Verdict
from tests.expressions.tree import Tree


@dataclass(frozen=True)
class Difference:
    """A kind of verdict, by what the expression and the detail look like."""

    why: str
    verdict: str
    detail: str
    text: str = ""

    def covers(self, text: str, found: Verdict) -> bool:
        """Whether this is why they differ."""
        return (
            found.name == self.verdict
            and re.search(self.detail, found.detail) is not None
            and re.search(self.text, text) is not None
        )


DECLARED: Sequence[Difference] = (
    Difference("dates after 9999 have no text", "fails alone", r"before the year # or after # has no text"),
)


def declared(part: Tree, found: Verdict) -> str | None:
    """Why a difference is meant, None for one that is not."""
    return next((known.why for known in DECLARED if known.covers(part.sql, found)), None)
