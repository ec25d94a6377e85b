"""The public surface is one sorted list; growing it is a decision, so it is pinned here."""

from __future__ import annotations

import inspect

import lakebed

PINNED = [
    "CommitResult",
    "ConflictError",
    "CorruptTable",
    "InvalidRequest",
    "LakebedError",
    "RecordMerger",
    "Scan",
    "StorageUnavailable",
    "Table",
    "TableNotFound",
    "UnsupportedFormat",
    "create",
    "open",
    "read",
    "register_key_generator",
    "register_merger",
]


def test_the_list_is_sorted_and_pinned() -> None:
    assert lakebed.__all__ == sorted(lakebed.__all__) == PINNED


def test_every_name_exists_and_says_what_it_is() -> None:
    for name in lakebed.__all__:
        assert inspect.getdoc(getattr(lakebed, name)), f"lakebed.{name} has no docstring"


def test_errors_form_the_drawn_tree() -> None:
    kinds = [lakebed.InvalidRequest, lakebed.TableNotFound, lakebed.ConflictError, lakebed.StorageUnavailable]
    for kind in [*kinds, lakebed.CorruptTable, lakebed.UnsupportedFormat]:
        assert kind.__mro__[1] is lakebed.LakebedError
