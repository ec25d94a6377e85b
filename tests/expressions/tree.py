"""A random expression: its text, and what it is made of, so that a disagreement can be traced to its smallest part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

HOLE = re.compile(r"\{(\d+)\}")


@dataclass(frozen=True)
class Tree:
    """Text with numbered holes, `if({0}, {1}, {2})`, and what stands in them.

    `kind` is the family of its value (`bool`, `int`, `float`, `decimal`, `string`, `binary`, `date`, `timestamp`,
    `ntz`); `form` names a leaf's type, so that findings group by types and not by constants.
    """

    kind: str
    template: str
    children: tuple[Tree, ...] = ()
    form: str = ""

    @property
    def sql(self) -> str:
        """The text."""
        if not self.children:
            return self.template
        return HOLE.sub(lambda hole: self.children[int(hole[1])].sql, self.template)

    @property
    def shape(self) -> str:
        """The text with operands replaced by their forms: what findings are grouped by."""
        if not self.children:
            return self.form or self.template
        return HOLE.sub(lambda hole: self.children[int(hole[1])]._operand, self.template)

    @property
    def _operand(self) -> str:
        return self.form or (self.template if self.leaf else f"~{self.kind}")

    def walk(self) -> Iterator[Tree]:
        """Itself and everything below, the deepest first."""
        for child in self.children:
            yield from child.walk()
        yield self

    @property
    def leaf(self) -> bool:
        return not self.children
