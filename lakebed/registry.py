"""Names for things that can be plugged in: index kinds, lock providers, storages, base file formats.

    registered     by a `register_*` function of this process: counts before the others
    in the package one line each: the name, and where the value is found ("package.module:NAME"), loaded when it is used
    installed      entry points of other distributions, read only for names that nobody above knows

A name may come out of a table's own files. It only ever selects among these, and never says what is imported. A name
counts in any case, and a registry line without a colon is another word for a name.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class Registry:
    """The things of one kind, by name; `group` is the entry point group in which other distributions declare theirs."""

    def __init__(self, group: str, lines: Mapping[str, str]) -> None:
        self.group = group
        self._lines = dict(lines)
        self._words = {word.lower(): word if ":" in line else line for word, line in lines.items()}
        self._values: dict[str, object] = {}
        self._installed: dict[str, importlib.metadata.EntryPoint] | None = None

    def register(self, name: str, value: object, also: Iterable[str] = ()) -> None:
        """Make a value known under a name, and under other words for it; the last one to register a name has it."""
        self._values.pop(self._words.get(name.lower(), ""), None)
        self._words.update({word.lower(): name for word in (name, *also)})
        self._values[name] = value

    def name_of(self, word: str) -> str | None:
        """The name that a word stands for, as it is spelt here; None when nobody knows it. Nothing is loaded."""
        known = self._words.get(word.lower())
        if known is not None:
            return self._words[known.lower()]  # what another word stands for may have been registered anew
        entry = self._entry_points().get(word.lower())
        return entry.name if entry is not None else None

    def knows(self, word: str) -> bool:
        """Whether a word counts; nothing is loaded."""
        return word in self._words or self.name_of(word) is not None

    def find(self, word: str, kind: type[T]) -> T | None:
        """The value of a name or another word for it, loaded if need be; None when nobody knows it."""
        name = self.name_of(word)
        if name is None:
            return None
        if name not in self._values:
            line = self._lines.get(name)
            self._values[name] = _load(line) if line is not None else self._entry_points()[name.lower()].load()
        value = self._values[name]
        if not isinstance(value, kind):
            raise TypeError(f"{name!r} of {self.group} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    @property
    def names_here(self) -> tuple[str, ...]:
        """The names that the package knows or that were registered; nothing installed is looked for."""
        return tuple(dict.fromkeys(self._words[name.lower()] for name in self._words.values()))

    @property
    def built_in(self) -> tuple[str, ...]:
        """The words that the package itself knows."""
        return tuple(self._lines)

    @property
    def words(self) -> tuple[str, ...]:
        """All words that count now, for messages."""
        found = {word.lower(): word for word in (*self._lines, *self._values)}
        for word, entry in self._entry_points().items():
            found.setdefault(word, entry.name)
        return tuple(found.values())

    @property
    def names(self) -> tuple[str, ...]:
        """All names that count now, without other words for them."""
        return tuple(dict.fromkeys(name for word in self.words if (name := self.name_of(word)) is not None))

    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        """What is installed, looked up once per process: it costs a look at every distribution."""
        if self._installed is None:
            found = importlib.metadata.entry_points(group=self.group)
            self._installed = {entry.name.lower(): entry for entry in found}
        return self._installed


def _load(line: str) -> object:
    module, _, name = line.partition(":")
    return getattr(importlib.import_module(module), name)
