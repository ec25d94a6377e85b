"""The write operations, under Hudi's names, and what each means for files and timeline."""

from __future__ import annotations

from enum import StrEnum

from lakebed.config.read_options import TableConfig
from lakebed.config.write_options import WriteOptions
from lakebed.model.instant import Action


class Operation(StrEnum):
    """The operation recorded in a commit."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    DELETE_PARTITION = "DELETE_PARTITION"

    @property
    def replaces(self) -> bool:
        """Whether the commit replaces file groups."""
        return self in _REPLACING

    @property
    def looks_up(self) -> bool:
        """Whether rows may have keys that are in the table already."""
        return self in (Operation.UPSERT, Operation.DELETE)

    def action(self, config: TableConfig) -> Action:
        """The timeline action of the write."""
        if self.replaces:
            return Action.REPLACE_COMMIT
        return Action.DELTA_COMMIT if config.is_mor else Action.COMMIT

    def folds(self, options: WriteOptions, config: TableConfig, *, is_hashed: bool = False) -> bool:
        """Whether rows with the same key in the data are merged into one row.

        A file of a sorted layout holds each key once, and with a hashed index each key has one row in the table.
        """
        if config.is_lsm_tree or is_hashed or self in (Operation.UPSERT, Operation.DELETE):
            return True
        return options.combine_before_insert

    def keeps_known(self, config: TableConfig, *, is_hashed: bool = False) -> bool:
        """Whether rows are added beside rows of the same key; a sorted layout or a hashed index merges them instead."""
        return not (self.looks_up or config.is_lsm_tree or is_hashed)


_REPLACING = frozenset({Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE, Operation.DELETE_PARTITION})
