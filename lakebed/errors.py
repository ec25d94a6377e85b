"""The exceptions of lakebed; each kind stands for what the caller should do next.

    LakebedError
     ├── InvalidRequest        the call is wrong: change the arguments or the data
     ├── TableNotFound         no table at that path: create it, or correct the path
     ├── ConflictError         another writer was first: safe to retry
     ├── StorageUnavailable    the store did not answer: safe to retry
     ├── CorruptTable          bytes on storage are wrong: names the file and the offset
     └── UnsupportedFormat     the bytes are right but this version cannot read them

An error carries the file and the offset as attributes as well as in its text, so that tools need not parse text. Where
the raising code has no better hint, the class provides one, so that every message of those classes suggests a next
step.
"""

from __future__ import annotations

from typing import ClassVar


class LakebedError(Exception):
    """Base of all errors raised by lakebed."""

    way_out: ClassVar[str | None] = None
    """The default hint of the class."""

    def __init__(
        self, what: str, *, file: str | None = None, offset: int | None = None, hint: str | None = None
    ) -> None:
        self.what = what
        self.file = file
        self.offset = offset
        self.hint = hint if hint is not None else self.way_out
        super().__init__(what, file, offset, self.hint)

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        at = f" (at byte {self.offset})" if self.offset is not None else ""
        next_step = f" {self.hint}" if self.hint else ""
        return (
            f"{where}{self.what}{at}.{next_step}" if not self.what.endswith(".") else f"{where}{self.what}{next_step}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.file, self.offset, self.hint))


def _rebuild(
    cls: type[LakebedError], what: str, file: str | None, offset: int | None, hint: str | None
) -> LakebedError:
    return cls(what, file=file, offset=offset, hint=hint)


class InvalidRequest(LakebedError):
    """The request cannot be carried out; nothing was changed."""


class TableNotFound(LakebedError):
    """There is no table at that path."""


class ConflictError(LakebedError):
    """Another writer was first; the same call may be tried again."""

    way_out = "Try again."


class StorageUnavailable(LakebedError):
    """Storage did not answer or refused; the same call may be tried again."""

    way_out = "Try again."


class CorruptTable(LakebedError):
    """A file of the table does not hold what the format says it must."""

    way_out = "Restore the file from a copy of the table."


class UnsupportedFormat(LakebedError):
    """A valid table, block or file of a version or kind that lakebed does not read."""

    way_out = "Read it with Apache Hudi, or have Hudi rewrite it in a form that is supported."
