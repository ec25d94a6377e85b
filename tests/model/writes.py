"""Random writes of every kind into one table, and the same into its model."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from lakebed.merge.record_merger import register_merger
from lakebed.model.schema import META_FIELD_NAMES
from lakebed.table import Table
from tests.model.foreign import repeat_rows
from tests.model.kinds import Kind
from tests.model.versions import IS_DELETED, Row, TableModel, Version
from tests.schema_changes import Add, Change, Drop, Promote, Rename, alter

PARTITIONS = ("a", "b", "c")
WIDTHS = (6, 6, 40)
"""How many more columns there are, which are null mostly."""
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
MEMORIES = (None, None, "64KB", "256KB", "1MB", "16MB")
MEMORIES_OF_LARGE = (None, "256KB", "1MB", "1MB", "2MB")
MOST_COMMITS = 60
"""After so many no more come by the dozen: every step looks at all of them."""
BY_HAND = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
FIXED = ("id", "b", "ts", "p", "v", "txt", IS_DELETED)
MERGER = "tests.model.KeepLargest"
ADDABLE: tuple[pa.DataType, ...] = (
    pa.int32(),
    pa.float32(),
    pa.string(),
    pa.bool_(),
    pa.date32(),
    pa.list_(pa.string()),
    pa.struct([("n", pa.int32()), ("s", pa.string())]),
)
WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


class KeepLargest:
    """The newer row, with the larger value of `v`."""

    associative = True

    def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        at = newer.schema.get_field_index("v")
        return newer.set_column(at, "v", pc.max_element_wise(older["v"], newer["v"]))


register_merger(MERGER, KeepLargest)


class Column:
    """A column that may change its name and type; its label stays."""

    def __init__(self, label: str, name: str, kind: pa.DataType) -> None:
        self.label, self.name, self.type = label, name, kind

    def changed(self, *, name: str | None = None, kind: pa.DataType | None = None) -> Column:
        return Column(self.label, name or self.name, kind or self.type)


class Writes:
    """One table, its model, and chance."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind, self.chance, self.serial = kind, random.Random(seed), 0
        self.memories = MEMORIES_OF_LARGE if kind.size == "large" else MEMORIES
        self.most_keys = 6000 if kind.size == "large" else self.chance.choice([16, 16, 60])
        self.floor: dict[Any, int] = {}
        """No later row of a key may be older than its newest ordered delete: how long such a delete is remembered is
        up to the table's type."""
        log_format, version = kind.logs.split()
        self.key_columns = {"string": ["id"], "int": ["id"], "composite": ["id", "b"], "none": []}[kind.keys]
        self.columns = [Column("x0", "x0", pa.int32()), Column("x1", "x1", pa.string())]
        width = min(self.chance.choice(WIDTHS), WIDTHS[0] if kind.size == "large" else WIDTHS[-1])
        self.columns += [Column(f"n{n}", f"n{n}", ADDABLE[n % len(ADDABLE)]) for n in range(width)]
        self.text_size, self.fewest = 0, 1
        """How long the texts of a batch are and how many rows it has at least: so logs differ in size."""
        self.shapes: list[tuple[Column, ...]] = []
        self.url = f"memory://model/{uuid.uuid4().hex}"
        merging = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"} if kind.fills else {}
        if kind.merge == "custom":
            merging = {"hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": MERGER}
        self.table: Table = lakebed.create(
            self.url,
            self.schema,
            record_key=self.key_columns or None,
            partition_by="p" if kind.partitioned else None,
            ordering="ts" if kind.by_event_time else None,
            table_type=kind.table_type,
            layout=kind.layout,
            log_format=log_format,
            index=kind.index,
            num_buckets=self.chance.choice([1, 1, 3]) if kind.is_hashed else None,
            properties={
                "hoodie.table.version": version,
                "hoodie.populate.meta.fields": str(kind.meta_fields).lower(),
                **merging,
            },
        )
        self.model = TableModel(
            key_of=lambda row: tuple(row[name] for name in self.key_columns or ["v"]),
            partition_of=lambda row: f"p={row['p']}" if kind.partitioned else "",
            merge=kind.merge,
            is_global=kind.is_global,
        )
        self.instants: list[str] = []
        self.completions: list[str] = []
        self._weights: dict[str, int] = {}

    def pick(self, names: list[str]) -> str:
        """One of them. Every history likes some actions and leaves others out, so that few meet often."""
        for name in sorted(set(names) - self._weights.keys()):
            self._weights[name] = self.chance.choice([0, 1, 1, 4])
        weights = [self._weights[name] for name in names]
        return self.chance.choices(names, weights if any(weights) else None)[0]

    # ------------------------------------------------------------------ rows
    @property
    def schema(self) -> pa.Schema:
        """What writes bring now."""
        id_type = pa.int64() if self.kind.keys == "int" else pa.string()
        kinds = [id_type, pa.int32(), pa.int64(), pa.string(), pa.int64(), pa.string(), pa.bool_()]
        fixed = [pa.field(name, kind) for name, kind in zip(FIXED, kinds, strict=True)]
        return pa.schema([*fixed, *(pa.field(column.name, column.type) for column in self.columns)])

    def row(self, number: int | None = None) -> Row:
        """A row of a random key, by label; its value is told apart from every other."""
        chance = self.chance
        self.serial += 1
        number = chance.randrange(self.most_keys) if number is None else number
        ident: Any = number * 7 - 20 if self.kind.keys == "int" else f"k{number:04d}{'é' * (number % 3)}"
        return {
            "id": ident,
            "b": number % 5,
            "ts": max(chance.randint(1, 30), self.floor.get(number, 0)),
            "p": chance.choice(PARTITIONS),
            "v": self.serial,
            "txt": self.text(number),
            IS_DELETED: chance.choice([None, False]),
            **{column.label: self.value(column.type) for column in self.columns},
        }

    def text(self, number: int) -> str | None:
        """Texts that repeat for some keys and differ for others, and that take more room in some batches."""
        if self.kind.size == "large":
            text = f"t{self.serial:05d}" if number * 2 // self.most_keys else "same ."
            return text * 55
        if self.text_size:
            return "".join(self.chance.choices(LETTERS, k=self.text_size))
        return self.chance.choice([None, "", "same", f"t{self.serial}", "long" * self.chance.randrange(200)])

    def value(self, kind: pa.DataType) -> Any:
        """A value of a type, or more often none."""
        chance = self.chance
        if chance.random() < 0.7:
            return None
        if pa.types.is_integer(kind):
            return chance.randint(-9, 9)
        if pa.types.is_floating(kind):
            return chance.randint(-9, 9) / 4
        if pa.types.is_string(kind):
            return chance.choice(["", "x", "yy" * chance.randrange(20)])
        if pa.types.is_boolean(kind):
            return chance.random() < 0.5
        if pa.types.is_date(kind):
            return dt.date(2024, 1, chance.randint(1, 28))
        if pa.types.is_list(kind):
            return [chance.choice([None, "", "e"]) for _ in range(chance.randrange(3))]
        return {"n": chance.choice([None, 1]), "s": chance.choice([None, "s"])}

    def rows(self, most: int = 12, *, deletes: bool = False) -> list[Row]:
        """A batch that repeats keys, brings late rows and, if wanted, deletes some by mark."""
        if self.chance.random() < 0.4:  # several batches of a size, then some of another
            self.text_size, self.fewest = self.chance.choice([0, 30, 120, 120, 800]), self.chance.choice([1, 1, 6])
        count = self.chance.randint(min(self.fewest, most), most if self.fewest > 1 else min(3, most))
        if self.kind.size == "large" and self.chance.random() < 0.3:
            count = self.chance.randint(5000, 6000)
        share = self.chance.choice([0.2, 0.2, 0.7])
        by_columns = self.kind.fills or self.kind.merge == "custom"  # what a delete ends depends on what comes between
        seen: set[int] = set()
        deleted: set[int] = set()
        found = []
        for _ in range(count):
            number = self.chance.randrange(self.most_keys)
            if number in deleted:
                continue
            row = self.row(number)
            alone = not by_columns or number not in seen
            if deletes and alone and self.kind.keys != "none" and self.chance.random() < share:
                row[IS_DELETED] = True
                deleted.update([number] * by_columns)
                if self.kind.by_event_time and self.chance.random() < 0.3:
                    row["ts"] = None
                else:
                    self.floor[number] = row["ts"]
            seen.add(number)
            found.append(row)
        if count > 100 and self.chance.random() < 0.6:  # as they come out of another table
            found.sort(key=lambda row: row["id"])
        return found

    def new_rows(self, most: int = 8, *, replacing: bool = False) -> list[Row]:
        """Rows for inserts: where nothing looks keys up, each must come once, and be new unless all is replaced."""
        if self.kind.is_hashed or self.kind.keys == "none":
            return self.rows(most)
        known = set() if replacing else {place[1] for place in self.model.rows}
        numbers = list(range(self.most_keys))
        self.chance.shuffle(numbers)
        rows = [self.row(number) for number in numbers[:most]]
        return [row for row in rows if self.model.key_of(row) not in known]

    def data(self, rows: list[Row]) -> Any:
        """Rows as a caller may hand them in: plain or behind dictionaries, at once or in batches of a few."""
        names = {column.label: column.name for column in self.columns}
        named = [{names.get(label, label): value for label, value in row.items()} for row in rows]
        table = pa.Table.from_pylist(named, schema=self.schema)
        form = self.chance.choice(["plain", "plain", "dictionary", "large", "batches"])
        if form == "dictionary":
            for at, item in enumerate(table.schema):
                if pa.types.is_string(item.type) and self.chance.random() < 0.7:
                    table = table.set_column(at, item.name, table.column(at).dictionary_encode())
        elif form == "large":
            table = table.cast(
                pa.schema(
                    [
                        pa.field(f.name, pa.large_string() if pa.types.is_string(f.type) else f.type)
                        for f in table.schema
                    ]
                )
            )
        elif form == "batches" and len(rows) < 100:
            return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))
        return table

    def memory(self) -> str | None:
        return self.chance.choice(self.memories)

    # ------------------------------------------------------------------ operations
    def operations(self) -> list[str]:
        """What may be written to this table now."""
        keyless = self.kind.keys == "none"
        names = ["insert", "bulk_insert", "delete_where", "update", "overwrite", "overwrite_partitions"]
        if not keyless:
            names += ["upsert"] * 8 + ["delete_keys"] * 2 + ["merge"] * 2
            names += ["tiny_logs"] if self.kind.size == "tiny_logs" and len(self.instants) < MOST_COMMITS else []
        names += ["delete_partitions"] if self.kind.partitioned else []
        names += ["add_column", "promote"] * 2 if self.kind.columns == "added" else []
        names += ["alter"] * 4 if self.kind.columns == "renamed" else []
        if self.model.repeats:  # what a condition finds of such a key is only part of it
            names = [name for name in names if name in ("upsert", "delete_keys", "overwrite", "tiny_logs")]
        return names

    def write(self, name: str = "") -> str:
        """One write, or several small ones."""
        name = name or self.pick(self.operations())
        if not self.instants:
            name = "repeats" if self.kind.columns == "repeats" else "insert"
        if name.startswith("overwrite") and self.kind.columns == "repeats" and self.chance.random() < 0.5:
            name = "repeats"
        getattr(self, f"do_{name}")()
        return name

    def do_upsert(self) -> None:
        rows = self.rows(deletes=True)
        self.done(self.table.upsert(self.data(rows), BY_HAND, self.memory()))
        self.model.upsert(rows)

    def do_tiny_logs(self) -> None:
        for _ in range(self.chance.choice([4, 10, 30])):
            row = self.row()
            self.done(self.table.upsert(self.data([row]), BY_HAND))
            self.model.upsert([row])

    def do_insert(self) -> None:
        rows = self.new_rows()
        self.done(self.table.insert(self.data(rows), BY_HAND, self.memory()))
        self.model.upsert(rows)

    def do_bulk_insert(self) -> None:
        rows = self.new_rows()
        self.done(self.table.bulk_insert(self.data(rows), BY_HAND, self.memory()))
        self.model.upsert(rows)

    def do_repeats(self) -> None:
        """A table of base files alone, which hold some keys twice and are in no order."""
        self.floor.clear()
        rows = [self.row(number) for number in range(min(self.most_keys, 40))]
        write = self.table.overwrite if self.instants else self.table.bulk_insert
        done = write(self.data(rows), BY_HAND)
        self.done(done)
        self.model.overwrite([])
        self.model.snapshots.pop()
        for partition, named in repeat_rows(self.url, done.instant, self.chance, self.another):
            row = self.labelled(named)
            place = (partition, self.model.key_of(row))
            self.model.rows[place] = (*self.model.rows.get(place, ()), Version(row, self.model.commit))
        self.model.done()

    def another(self, row: Row) -> Row:
        """Another version of a row in a file."""
        self.serial += 1
        values = {"v": self.serial, "ts": self.chance.randint(1, 30), "txt": self.chance.choice([None, "again"])}
        return {**row, **values}

    def labelled(self, named: Row) -> Row:
        """A row of the table by label, meta columns left out."""
        names = {column.name: column.label for column in self.columns}
        return {names.get(name, name): value for name, value in named.items() if name not in META_FIELD_NAMES}

    def do_delete_where(self) -> None:
        limit = self.chance.randint(1, 40)
        self.done(self.table.delete(where=f"v % 3 = 0 AND ts < {limit}", options=BY_HAND, memory=self.memory()))
        self.model.delete(lambda row: row["v"] % 3 == 0 and row["ts"] < limit)

    def do_delete_keys(self) -> None:
        rows = [self.row() for _ in range(self.chance.randint(1, 5))]
        with_partition = self.kind.partitioned and self.chance.random() < 0.5
        names = [*self.key_columns, *(["p"] if with_partition else [])]
        if len(names) == 1:
            keys: list[Any] = [row[names[0]] for row in rows]
        else:
            keys = [{name: row[name] for name in names} for row in rows]
        self.done(self.table.delete(keys=keys, options=BY_HAND, memory=self.memory()))
        if self.kind.is_global:
            names = self.key_columns
        gone = {tuple(row[name] for name in names) for row in rows}
        self.model.delete(lambda row: tuple(row[name] for name in names) in gone)

    def do_update(self) -> None:
        limit = self.chance.randint(1, 40)
        self.done(self.table.update(set={"txt": "'u'", "v": "v + 0"}, where=f"ts < {limit}", options=BY_HAND))
        self.model.update(lambda row: {**row, "txt": "u"}, lambda row: row["ts"] < limit)

    def do_merge(self) -> None:
        """By key and partition: odd values update, others delete if they are large, what is missing comes in."""
        rows = list({self.model.key_of(row): row for row in self.rows()}.values())
        names = [*self.key_columns, *(["p"] if self.kind.partitioned else [])]
        on = " AND ".join(f"t.{name} = s.{name}" for name in names)
        merge = self.table.merge(self.data(rows), on=on, options=BY_HAND)
        merge = merge.when_matched_update(set={"txt": "concat(s.v, '')"}, condition="t.v % 2 = 1")
        only_updates = self.chance.random() < 0.4
        if not only_updates:
            merge = merge.when_matched_delete(condition="t.v > 20").when_not_matched_insert_all()
        self.done(merge.execute())
        new = []
        for row in rows:
            place = (self.model.partition_of(row), self.model.key_of(row))
            old = self.model.rows.get(place)
            if old is None:
                new += [] if only_updates else [row]
            elif old[0].row["v"] % 2 == 1:
                self.model.rows[place] = (Version({**old[0].row, "txt": str(row["v"])}, self.model.commit),)
            elif not only_updates and old[0].row["v"] > 20:
                del self.model.rows[place]
        self.model.upsert(new)

    def do_overwrite(self) -> None:
        self.floor.clear()
        rows = self.new_rows(replacing=True)
        self.done(self.table.overwrite(self.data(rows), BY_HAND, self.memory()))
        self.model.overwrite(rows)

    def do_overwrite_partitions(self) -> None:
        rows = self.new_rows(4, replacing=not self.kind.is_global) or [self.row(self.most_keys)]
        self.done(self.table.overwrite_partitions(self.data(rows), BY_HAND, self.memory()))
        self.model.overwrite_partitions(rows)

    def do_delete_partitions(self) -> None:
        paths = sorted({place[0] for place in self.model.rows})
        if not paths:
            return self.do_insert()
        path = self.chance.choice(paths)
        self.done(self.table.delete_partitions([path], options=BY_HAND))
        self.model.delete_partitions([path])
        return None

    # ------------------------------------------------------------------ columns that come and widen with a write
    def do_add_column(self) -> None:
        self.serial += 1
        name = f"c{self.serial}"
        self.columns.append(Column(name, name, self.chance.choice(ADDABLE)))
        self.do_upsert_new()

    def do_promote(self) -> None:
        narrow = [at for at, column in enumerate(self.columns) if column.type in WIDER]
        if narrow:
            at = self.chance.choice(narrow)
            self.columns[at] = self.columns[at].changed(kind=WIDER[self.columns[at].type])
        self.do_upsert_new()

    # ------------------------------------------------------------------ columns that change without a write
    def do_alter(self) -> None:
        """Rename, drop, add (again, under a name that was there) or promote a column, as ALTER TABLE does."""
        at = self.chance.randrange(len(self.columns))
        column, used = self.columns[at], {known.name for known in self.columns}
        names = [name for name in ("x0", "x1", "y", "z") if name not in used]
        change = self.chance.choice(["rename", "drop", "add", "add", "promote"])
        if change == "rename" and names:
            name = self.chance.choice(names)
            self.altered(Rename(column.name, name))
            self.columns[at] = column.changed(name=name)
        elif change == "drop" and len(self.columns) > 2:
            self.altered(Drop(column.name))
            del self.columns[at]
        elif change == "promote" and column.type in WIDER:
            self.altered(Promote(column.name, WIDER[column.type]))
            self.columns[at] = column.changed(kind=WIDER[column.type])
        elif names:
            self.serial += 1
            added = Column(f"a{self.serial}", self.chance.choice(names), self.chance.choice(ADDABLE))
            self.altered(Add(added.name, added.type))
            self.columns.append(added)
        else:
            return
        self.shapes[-1] = tuple(self.columns)

    def altered(self, change: Change) -> None:
        (done,) = alter(self.url, change)
        self.done(lakebed.CommitResult(done.requested_time, done.completion_time or "", 0, 0, 0, ()))
        self.model.done()
        self.table.refresh()

    def do_upsert_new(self) -> None:
        if self.kind.keys == "none":
            self.do_insert()
        else:
            self.do_upsert()

    def done(self, result: lakebed.CommitResult) -> None:
        self.instants.append(result.instant)
        self.completions.append(result.completion_time)
        self.shapes.append(tuple(self.columns))
