r"""Java regular expressions translated to RE2, which Arrow uses, where the two mean the same; others are refused.

    taken over    literals, ( ) (?: ) | * + ? {m,n} and their lazy forms, ^ at the start, [...] of characters and
                  ranges, \d \w \D \W, \t \n \r and escaped punctuation
    translated    .   any character but line ends, of which Java knows five       \s   with vertical tab
                  $   at the end of the pattern: before a last line end, too
    refused       the rest: back references, look-around, flags, possessive forms, \b, classes of classes, \p{...}

Only whether a text matches is computed, so that which match is found first makes no difference.
"""

from __future__ import annotations

import re

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_TOKEN = re.compile(
    r"(?P<group>\((?:\?:)?|\)|\|)"
    r"|(?P<repeat>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??)(?![*+?{])"
    r"|(?P<set>\[\^?(?:[^\]\[\\&^\-]|\\[tnrdwDW\-\\\[\]^.$*+?(){}|/])+(?:-(?:[^\]\[\\&^\-]))?"
    r"(?:(?:[^\]\[\\&\-]|\\[tnrdwDW\-\\\[\]^.$*+?(){}|/])(?:-(?:[^\]\[\\&^\-]))?)*-?\])"
    r"|(?P<escape>\\[dwDWstnr.$^*+?(){}\[\]|\\/\-])"
    r"|(?P<dot>\.)|(?P<start>\^)|(?P<end>\$)"
    r"|(?P<plain>[^\\()\[\]{}|*+?.^$])",
    re.DOTALL,
)


def to_re2(pattern: str) -> str:
    """The pattern for RE2; ValueError names the first part that is outside the common language."""
    out: list[str] = []
    position, previous = 0, "start"
    while position < len(pattern):
        found = _TOKEN.match(pattern, position)
        kind = found.lastgroup if found else None
        if found is None or kind is None or not _allowed(kind, found, pattern, previous):
            raise ValueError(f"{pattern[position : position + 12]!r} in the pattern means different things to engines")
        out.append(_translated(kind, found[0]))
        previous = "open" if found[0] in ("(", "(?:", "|") else kind
        position = found.end()
    return "".join(out)


def _allowed(kind: str, found: re.Match[str], pattern: str, previous: str) -> bool:
    if kind == "repeat":
        return previous not in ("start", "open", "repeat", "end")
    if kind == "start":
        return found.start() == 0
    if kind == "end":
        return found.end() == len(pattern)
    return True


def _translated(kind: str, text: str) -> str:
    if kind == "dot":
        return f"[^{_LINE_ENDS}]"
    if kind == "end":
        return rf"(?:\r\n|[{_LINE_ENDS}])?\z"
    return r"[\t\n\v\f\r ]" if text == r"\s" else text
