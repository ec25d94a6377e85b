"""Paths of files inside a table: text with `/`, relative to the table, and never more than text."""

from __future__ import annotations


def file_name(path: str) -> str:
    """The last part of a path: what the grammar of names reads, and by which commits and listings meet."""
    return path.rpartition("/")[2]


def folder_of(path: str) -> str:
    """The path without its last part; empty for a file in the table's base folder."""
    return path.rpartition("/")[0]
