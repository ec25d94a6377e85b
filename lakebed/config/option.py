"""Options: one declaration per option, from which parsing, rendering and the documentation come.

An option is a field of a frozen dataclass, declared with `option(key, kind, default, sentence)`. The group's class then
reads from a `hoodie.*` dict (`from_properties`), writes to one (`to_properties`) and documents itself
(`markdown_table`). A mistyped key would otherwise be silently ignored, so unknown keys are reported together
with the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from lakebed.errors import InvalidRequest
from lakebed.registry import Registry

T = TypeVar("T")

_SIZE = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))?\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE_LIMIT = 1 << 62


def bytes_of(size: str | int) -> int:
    """A number of bytes from 1048576, "512MB", "1.5 GiB" or "64k"; units are powers of 1024 either way."""
    if isinstance(size, int):
        if isinstance(size, bool) or not 0 <= size <= _SIZE_LIMIT:
            raise InvalidRequest(f"{size!r} is not a size in bytes")
        return size
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        raise InvalidRequest(f"{size!r} is not a size", hint='Write bytes as a number, or like "512MB" or "1.5GiB".')
    whole, fraction, unit = match.groups()
    scale: int = 1024 ** _POWERS[unit.lower()]
    value = int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
    if value > _SIZE_LIMIT:
        raise InvalidRequest(f"{size!r} is too large for a size in bytes")
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """How an option's text is read and written; `parse` raises ValueError or InvalidRequest for bad text."""

    name: str
    parse: Callable[[str], Any]
    render: Callable[[Any], str] = str


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("neither true nor false")
    return word == "true"


def _number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
        raise ValueError("not a whole number")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def choice(values: Mapping[str, T]) -> Kind:
    """One of a few words, any case, each with the value it stands for; the first word of a value is written."""
    known = {word.lower(): value for word, value in values.items()}

    def parse(text: str) -> T:
        word = text.strip().lower()
        if word not in known:
            raise ValueError(f"none of {', '.join(values)}")
        return known[word]

    def render(value: T) -> str:
        return next(word for word, stands_for in values.items() if stands_for == value)

    return Kind(" \\| ".join(f"`{word}`" for word in values), parse, render)


def registered(registry: Registry, spelt: Callable[[str], str] = str) -> Kind:
    """One of the names of a registry, which may grow, in any case; the value is the name, `spelt` in its own way."""

    def parse(text: str) -> str:
        name = registry.name_of(text.strip())
        if name is None:
            raise ValueError(f"none of {', '.join(registry.words)}")
        return spelt(name)

    def render(value: str) -> str:
        return registry.name_of(value) or value

    return Kind(" \\| ".join(f"`{word}`" for word in registry.built_in), parse, render)


def choice_of(enum: type[Enum]) -> Kind:
    """One of an enum's values."""
    return choice({str(member.value): member for member in enum})


TEXT = Kind("text", str)
FLAG = Kind("true or false", _flag, lambda value: "true" if value else "false")
NUMBER = Kind("number", _number)
SIZE = Kind("bytes", bytes_of)
WORDS = Kind("comma list", _words, ",".join)


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option.

    An alias counts only where the key and earlier aliases are absent; blank text counts as absent.
    """

    key: str
    kind: Kind
    default: Any
    sentence: str
    aliases: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, *self.aliases)

    def read(self, properties: Mapping[str, str]) -> Any:
        """The option's value in a dict of properties, or its default."""
        for key in self.keys:
            text = properties.get(key)
            if text is not None and str(text).strip():
                try:
                    return self.kind.parse(text if isinstance(text, str) else self.kind.render(text))
                except (ValueError, TypeError, AttributeError, StopIteration, InvalidRequest) as problem:
                    reason = problem.what if isinstance(problem, InvalidRequest) else str(problem)
                    raise InvalidRequest(f"{key}={str(text)[:80]!r}: {reason or 'of the wrong type'}") from None
        return self.default


_DECLARED: set[str] = set()


def declared_keys() -> frozenset[str]:
    """Every key that some option group has declared; groups of all layers count once they are imported."""
    return frozenset(_DECLARED)


def option(key: str, kind: Kind, default: Any, sentence: str, aliases: tuple[str, ...] = ()) -> Any:
    """A dataclass field that is an option."""
    _DECLARED.update((key, *aliases))
    return field(default=default, metadata={"option": Option(key, kind, default, sentence, aliases)})


def options_of(group: Any) -> dict[str, Option]:
    """The options of a group by field name."""
    found = ((one.name, one.metadata.get("option")) for one in dataclasses.fields(group))
    return {name: declared for name, declared in found if isinstance(declared, Option)}


def read_options(group: Any, properties: Mapping[str, str]) -> dict[str, Any]:
    """Field values of a group from properties, defaults included."""
    return {name: declared.read(properties) for name, declared in options_of(group).items()}


def to_properties(options: Any) -> dict[str, str]:
    """The properties that make these options again: those that differ from their defaults."""
    values = ((declared, getattr(options, name)) for name, declared in options_of(options).items())
    return {
        declared.key: declared.kind.render(value)
        for declared, value in values
        if value is not None and value != declared.default
    }


def markdown_table(group: Any) -> str:
    """The group's options as a Markdown table, for the documentation."""
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for declared in options_of(group).values():
        also = f" (also {', '.join(f'`{alias}`' for alias in declared.aliases)})" if declared.aliases else ""
        default = "" if declared.default is None else declared.kind.render(declared.default)
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{declared.key}`{also} | {declared.kind.name} | {shown} | {declared.sentence} |")
    return "\n".join(lines) + "\n"


def nearest_known(key: str, known: Iterable[str]) -> str | None:
    """The known key that a mistyped one most likely means."""
    found = difflib.get_close_matches(key.lower(), list(known), n=1, cutoff=0.8)
    return found[0] if found else None


def warn_unknown(properties: Iterable[str], known: Iterable[str], stacklevel: int = 2) -> tuple[str, ...]:
    """Warn of each `hoodie.*` or `lakebed.*` key that nothing reads.

    A known key that ends in a dot stands for all keys below it.
    """
    everything = frozenset(known)
    prefixes = tuple(key for key in everything if key.endswith("."))
    ours = (key for key in properties if key.startswith(("hoodie.", "lakebed.")))
    unknown = tuple(key for key in ours if key not in everything and not key.startswith(prefixes))
    for key in unknown:
        meant = nearest_known(key, everything)
        hint = f"; did you mean {meant}?" if meant else ""
        warnings.warn(f"unknown option {key} is ignored{hint}", UserWarning, stacklevel=stacklevel + 1)
    return unknown
