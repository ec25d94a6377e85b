"""The clauses of a MERGE, from text to bound expressions over `t.column` (the table) and `s.column` (the source).

    on        equality of every key column, and perhaps of partition columns: which rows match
    matched   update or delete the table's row
    missing   a source row that matches no row of the table: insert it
    orphan    a row of the table that no source row matches: update or delete it

Within each kind the first clause whose condition holds is applied. Every error in a clause is reported when it is
bound, before a row is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Expression, Predicate, parse_predicate
from lakebed.expression.tree import And, Cast, Compare, Field, Node
from lakebed.model.schema import is_meta_field
from lakebed.model.schema_change import did_you_mean
from lakebed.write.merge_into.join_keys import can_match
from lakebed.write.rows.set_expressions import bind_assignment, check_assignable

TARGET, SOURCE = "t.", "s."


class Kind(StrEnum):
    """Which rows a clause is for."""

    MATCHED = "matched"
    MISSING = "not matched"
    ORPHAN = "not matched by source"


class Verb(StrEnum):
    """What is done with the rows."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause as the user wrote it; `values` None stands for all columns of the source."""

    kind: Kind
    verb: Verb
    values: Mapping[str, str] | None = field(default_factory=dict)
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class BoundClause:
    """A clause over the columns of both sides."""

    kind: Kind
    verb: Verb
    values: Mapping[str, Expression]
    condition: Predicate | None = None

    @property
    def columns(self) -> frozenset[str]:
        """The columns that its expressions read, with their side."""
        read = {name for expression in self.values.values() for name in expression.columns}
        return frozenset(read | set(self.condition.columns if self.condition else ()))


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """Which source column is compared with which key or partition column of the table."""

    columns: Mapping[str, str]
    by_partition: bool

    @classmethod
    def of(cls, on: str, config: TableConfig, own: pa.Schema, source: pa.Schema) -> JoinColumns:
        """The columns compared in the text of `on`."""
        if not config.key_fields:
            raise InvalidRequest("the table has no record key, so nothing can be matched", hint="Use insert.")
        condition = parse_predicate(on, pa.schema([*_sided(own, TARGET), *_sided(source, SOURCE)]))
        found: dict[str, str] = {}
        allowed = (*config.key_fields, *config.partition_fields)
        for node in _conjuncts(condition.root):
            target, paired = _pair(node, on)
            if target not in allowed:
                raise InvalidRequest(
                    f"on={on!r} compares {target!r}, which is no key or partition column",
                    hint="Put it into the condition of a clause.",
                )
            kind, other = own.field(target).type, source.field(paired).type
            if not can_match(kind, other):
                raise InvalidRequest(
                    f"on={on!r} compares {target!r}, which is {kind}, with {other}: rows cannot be looked up by that",
                    hint=f"Cast the column {paired!r} of the source to {kind} first.",
                )
            if found.setdefault(target, paired) != paired:
                raise InvalidRequest(f"on={on!r} compares {target!r} twice")
        missing = [name for name in config.key_fields if name not in found]
        if missing:
            raise InvalidRequest(
                f"on={on!r} must compare every key column, and lacks {', '.join(missing)}",
                hint=f"Write on={' AND '.join(f't.{name} = s.{name}' for name in config.key_fields)!r}.",
            )
        partitions = config.partition_fields
        return cls(found, bool(partitions) and all(name in found for name in partitions))


def _conjuncts(node: Node) -> Sequence[Node]:
    return [part for arg in node.args for part in _conjuncts(arg)] if isinstance(node, And) else [node]


def _pair(node: Node, on: str) -> tuple[str, str]:
    """Table column and source column of one equality."""
    if isinstance(node, Compare) and node.op == "=":
        sides = [side.arg if isinstance(side, Cast) else side for side in (node.left, node.right)]
        names = [side.path[0] for side in sides if isinstance(side, Field) and len(side.path) == 1]
        target = [name.removeprefix(TARGET) for name in names if name.startswith(TARGET)]
        source = [name.removeprefix(SOURCE) for name in names if name.startswith(SOURCE)]
        if len(target) == len(source) == 1:
            return target[0], source[0]
    raise InvalidRequest(
        f"on={on!r} must be equalities of a column of the table (t) and one of the source (s)",
        hint="Write on='t.id = s.id', and other conditions into the clauses.",
    )


def bind(clauses: Sequence[Clause], config: TableConfig, own: pa.Schema, source: pa.Schema) -> tuple[BoundClause, ...]:
    """The clauses over the columns of the table and the source."""
    if not clauses:
        raise InvalidRequest("a merge needs a clause", hint="Such as .when_matched_update_all().")
    return tuple(_bound(clause, config, own, source) for clause in clauses)


def refuse_new_columns(
    clauses: Sequence[Clause],
    bound: Sequence[BoundClause],
    join_columns: JoinColumns,
    own: pa.Schema,
    source: pa.Schema,
) -> None:
    """Refuse source columns that the table does not have, which clauses for all columns would lose.

    Columns that a condition or an expression reads are allowed: they are not meant to be written.
    """
    if all(clause.values is not None for clause in clauses):
        return
    read = {name.removeprefix(SOURCE) for clause in bound for name in clause.columns} | set(
        join_columns.columns.values()
    )
    known = {*own.names, *read}
    new = [
        item.name
        for item in source
        if item.name not in known and not is_meta_field(item.name) and not pa.types.is_null(item.type)
    ]
    if new:
        raise InvalidRequest(
            f"the source has columns that the table lacks: {', '.join(new)}",
            hint="Drop them from the source, name the columns in the clauses, or add them first with upsert.",
        )


def _bound(clause: Clause, config: TableConfig, own: pa.Schema, source: pa.Schema) -> BoundClause:
    sides = {
        Kind.MATCHED: [*_sided(own, TARGET), *_sided(source, SOURCE)],
        Kind.MISSING: _sided(source, SOURCE),
        Kind.ORPHAN: _sided(own, TARGET),
    }[clause.kind]
    schema = pa.schema([*sides, *_plain(sides)])
    condition = None if clause.condition is None else parse_predicate(clause.condition, schema)
    texts = clause.values
    if texts is None:
        fixed = () if clause.verb is Verb.INSERT else config.key_fields
        texts = {
            item.name: "s.`" + item.name.replace("`", "``") + "`"
            for item in own
            if item.name in source.names and item.name not in fixed
        }
        if not texts:
            raise InvalidRequest("the source has none of the table's columns")
    elif clause.verb is not Verb.DELETE and not texts:
        raise InvalidRequest("nothing to set", hint='Give {"column": "expression"}.')
    for name in texts:
        if clause.verb is Verb.UPDATE and clause.values is not None:
            check_assignable(name, config, own)
        elif name not in own.names:
            raise InvalidRequest(f"the table has no column {name!r}", hint=did_you_mean(name, own.names))
    if clause.verb is Verb.INSERT:
        _check_insert(texts, config, own)
    values = {name: bind_assignment(text, schema, own.field(name)) for name, text in texts.items()}
    return BoundClause(clause.kind, clause.verb, values, condition)


def _check_insert(texts: Mapping[str, str], config: TableConfig, own: pa.Schema) -> None:
    needed = dict.fromkeys((*config.key_fields, *config.partition_fields, *config.ordering_fields))
    required = [item.name for item in own if not item.nullable]
    missing = [name for name in (*needed, *required) if name.partition(".")[0] not in texts]
    if missing:
        raise InvalidRequest(f"an insert must give {missing[0]!r} a value", hint=f'Add "{missing[0]}": ... to values.')


def _sided(schema: pa.Schema, side: str) -> list[pa.Field]:
    return [pa.field(side + item.name, item.type) for item in schema]


def _plain(sides: Sequence[pa.Field]) -> list[pa.Field]:
    """Columns that only one side has may be named without it."""
    names = [item.name[2:] for item in sides]
    return [pa.field(item.name[2:], item.type) for item in sides if names.count(item.name[2:]) == 1]
