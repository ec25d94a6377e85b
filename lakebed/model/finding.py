"""A finding of the consistency check: which rule is broken, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is: answers may be wrong, work is wasted, or merely worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violated invariant; `invariant` is its short, fixed name."""

    invariant: str
    severity: Severity
    file: str
    what: str
    what_to_do: str
