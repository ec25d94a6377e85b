"""The grammar of random expressions: which forms give a value of a family, and how often each is drawn."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tests.expressions import computed, conditions
from tests.expressions.columns import LEAVES, Column
from tests.expressions.draw import Draw, Form, Forms
from tests.expressions.tree import Tree

_FAMILIES = {
    **{"bool": 10, "int": 4, "float": 4, "decimal": 4, "string": 4},
    **{"binary": 0.5, "date": 2, "timestamp": 2, "ntz": 1},
}


def _forms(kind: str, *own: tuple[Form, float]) -> Forms:
    """A family's own forms, and those that every family has."""
    casts = 1.0 if kind == "bool" else 2.5
    forms = [*own, (computed.case(kind), 1.0), (computed.choice(kind), 2.5), (computed.cast(kind), casts)]
    return [form for form, _ in forms], [weight for _, weight in forms]


FORMS: Mapping[str, Forms] = {
    "bool": _forms(
        "bool",
        (conditions.compare, 9),
        (conditions.logic, 3),
        (conditions.negation, 1.5),
        (conditions.is_something, 2),
        (conditions.is_in, 4),
        (conditions.between, 3),
        (conditions.like, 4),
        (conditions.matches, 1.5),
        (conditions.contains, 1),
    ),
    "int": _forms(
        "int",
        (computed.arithmetic("int"), 4),
        (computed.sign("int"), 1),
        (computed.rounded("int"), 1),
        (computed.length, 1),
        (computed.part_of_time, 2),
    ),
    "float": _forms(
        "float", (computed.arithmetic("float"), 4), (computed.sign("float"), 1.5), (computed.rounded("float"), 1)
    ),
    "decimal": _forms(
        "decimal",
        (computed.arithmetic("decimal"), 4),
        (computed.sign("decimal"), 1),
        (computed.rounded("decimal"), 1.5),
    ),
    "string": _forms("string", (computed.text, 7)),
    "binary": _forms("binary"),
    "date": _forms("date", (computed.to_date, 4), (computed.date_sum, 0.1)),
    "timestamp": _forms("timestamp"),
    "ntz": _forms("ntz"),
}
_SIMPLE: Mapping[str, Forms] = {
    **FORMS,
    "bool": (
        (conditions.compare, conditions.is_in, conditions.between, conditions.like, conditions.is_something),
        (9, 4, 3, 2, 1),
    ),
}
"""Conditions that statistics can speak about."""


def expression(chance: random.Random) -> Tree:
    """An expression of any family over all columns."""
    kind = chance.choices(list(_FAMILIES), list(_FAMILIES.values()))[0]
    return Draw(chance, FORMS).of(kind)


def condition(
    chance: random.Random, leaves: Sequence[Column] = LEAVES, samples: Mapping[str, Sequence[str]] | None = None
) -> Tree:
    """A condition over some columns: half of them plain comparisons and what AND, OR and NOT make of them."""
    if chance.random() < 0.3:
        return Draw(chance, FORMS, leaves, samples).of("bool")
    simple = Draw(chance, _SIMPLE, leaves, samples)
    if chance.random() < 0.6:
        return simple.of("bool", 1)
    parts = tuple(Tree("bool", "({0})", (simple.of("bool", 1),)) for _ in range(2))
    return Tree("bool", chance.choice(("{0} AND {1}", "{0} OR {1}", "NOT {0} AND {1}", "NOT ({0} OR {1})")), parts)
