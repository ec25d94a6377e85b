r"""Escapes control characters in text that comes from data before it is printed on a terminal.

A value may hold the escape character, and with it any terminal command: colours, a new title, a cleared screen, on some
terminals even input as if the user typed it. Control characters of both blocks, the marks that change the writing
direction, and lone surrogates become `\n`, `\x1b`, `\u202e`.
"""

from __future__ import annotations

import re

_OBEYED = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff"
_IN_TEXT = re.compile(f"[{_OBEYED}]")
_IN_CELL = re.compile(f"[\t\n{_OBEYED}]")
_NOT_IN_JSON = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_NAMED = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def harmless(text: str) -> str:
    """Text of several lines; line ends and tabs stay."""
    return _IN_TEXT.sub(_escaped, text)


def harmless_cell(text: str) -> str:
    """Text that is one cell: a line end is escaped as well, or a value would look like two rows."""
    return _IN_CELL.sub(_escaped, text)


def harmless_json(text: str) -> str:
    """A JSON document, in which the encoder has escaped the first block of controls; its value does not change."""
    return _NOT_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _NAMED.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
