"""Drawing operands: columns, constants and what a value is compared with."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from tests.expressions.columns import LEAVES, Column
from tests.expressions.constants import constant, text_of
from tests.expressions.tree import HOLE, Tree

KINDS = ("bool", "int", "float", "decimal", "string", "binary", "date", "timestamp", "ntz")
NUMBERS = ("int", "float", "decimal")
TIMES = ("date", "timestamp", "ntz")
_STRANGE = 0.01
"""How often an operand is of another family than its place asks for: coerced, or refused."""
_BARE = 0.12
"""How often an operand stands without the parentheses that keep it together: precedence is part of the meaning."""
_DEPTHS, _DEPTH_WEIGHTS = (1, 2, 3, 4), (40, 35, 18, 7)


class Draw:
    """One source of chance, the columns to speak about, and the forms that give each family of values.

    `samples` are constants taken from the rows, by family, so that conditions find something.
    """

    def __init__(
        self,
        chance: random.Random,
        forms: Mapping[str, Forms],
        leaves: Sequence[Column] = LEAVES,
        samples: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.chance = chance
        self._forms = forms
        self._samples = samples or {}
        self._by_kind = {kind: [leaf for leaf in leaves if leaf.kind == kind] for kind in KINDS}
        self._every = all(self._by_kind.values())

    def kind(self, *among: str) -> str:
        """A family, of those that have columns where any does; a column that is there twice counts twice."""
        if self._every:
            return self.chance.choice(among)
        present = [kind for kind in among for _ in self._by_kind[kind]]
        return self.chance.choice(present or among)

    def of(self, kind: str, depth: int | None = None) -> Tree:
        """An expression of a family, which is more than a column or a constant."""
        forms, weights = self._forms[kind]
        drawn = depth or self.chance.choices(_DEPTHS, _DEPTH_WEIGHTS)[0]
        return self.chance.choices(forms, weights)[0](self, drawn - 1)

    def operand(self, kind: str, depth: int) -> Tree:
        """Something of a family; at depth 0 a column or, rarely, a constant."""
        if self.chance.random() < _STRANGE:
            kind = self.chance.choice(KINDS)
        if depth > 0 and self.chance.random() < 0.6:
            return self.of(kind, depth)
        return self.constant(kind) if self.chance.random() < 0.2 else self.column(kind)

    def column(self, kind: str, text: str | None = None) -> Tree:
        """A column of a family."""
        leaves = self._by_kind[kind]
        if not leaves:
            return self.constant(kind)
        known = [leaf for leaf in leaves if leaf.text == text] if text else leaves
        leaf = self.chance.choice(known or leaves)
        return Tree(kind, self._spelt(leaf.name), form=f"<{leaf.sql_type}>")

    def _spelt(self, name: str) -> str:
        """A column's name, at times in capitals or in backquotes."""
        draw = self.chance.random()
        if draw < 0.02:
            return name.upper()
        return ".".join(f"`{part}`" for part in name.split(".")) if draw < 0.04 else name

    def constant(self, kind: str) -> Tree:
        """A constant of a family, sometimes one that a row has."""
        samples = self._samples.get(kind)
        if samples and self.chance.random() < 0.6:
            return Tree(kind, self.chance.choice(samples), form=f"<{kind} constant>")
        return constant(kind, self.chance)

    def text_of(self, kind: str) -> Tree:
        return text_of(kind, self.chance)

    def wrapped(self, *parts: Tree) -> tuple[Tree, ...]:
        """Parts with parentheses where they need them, or by chance without."""
        return tuple(part if _closed(part.template) or self._bare(part) else parens(part) for part in parts)

    def _bare(self, part: Tree) -> bool:
        return not part.leaf and not part.template.startswith("-") and self.happens(_BARE)

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)

    def happens(self, share: float) -> bool:
        return self.chance.random() < share

    def partner(self, kind: str, depth: int) -> Tree:
        """What a value of a family is compared with: most often its own family, or another that Spark coerces."""
        draw = self.chance.random()
        if draw < 0.3:
            return self.constant(kind)
        if draw < 0.5:
            return self.operand(kind, depth)
        if draw < 0.58:
            return self.text_of(kind)
        if draw < 0.6:
            return Tree(kind, "NULL", form="NULL")
        others = NUMBERS if kind in NUMBERS else TIMES if kind in TIMES else (kind,)
        other = self.chance.choice(others)
        return self.constant(other) if self.happens(0.7) else self.operand(other, depth)


Form = Callable[[Draw, int], Tree]
Forms = tuple[Sequence[Form], Sequence[float]]


def parens(part: Tree) -> Tree:
    return Tree(part.kind, "({0})", (part,), part.form or "~" + part.kind)


def _closed(template: str) -> bool:
    """A column, a constant without a sign, or a call."""
    if not HOLE.search(template) or template.startswith("'"):
        return not template.startswith("-")
    return template.endswith(")") and "(" in template.partition("{")[0]
