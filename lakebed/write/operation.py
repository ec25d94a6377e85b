"""The write operations, under Hudi's names, and what each means for files and timeline."""

from __future__ import annotations

from enum import StrEnum

from lakebed.config.read_options import TableConfig
from lakebed.config.write_options import WriteOptions
from lakebed.model.instant import Action


class Operation(StrEnum):
    """What a commit says it did."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    DELETE_PARTITION = "DELETE_PARTITION"

    @property
    def replaces(self) -> bool:
        """Whether file groups vanish with the commit."""
        return self in _REPLACING

    @property
    def looks_up(self) -> bool:
        """Whether rows may belong to keys that are there already."""
        return self in (Operation.UPSERT, Operation.DELETE)

    def action(self, config: TableConfig) -> Action:
        """The action under which the write stands on the timeline."""
        if self.replaces:
            return Action.REPLACE_COMMIT
        return Action.DELTA_COMMIT if config.is_mor else Action.COMMIT

    def folds(self, options: WriteOptions, config: TableConfig, *, is_hashed: bool = False) -> bool:
        """Whether repeated keys of the data become one row.

        A sorted layout allows no repeats in a file, and where a hash places rows a key has one row wherever it is.
        """
        if config.is_lsm_tree or is_hashed or self in (Operation.UPSERT, Operation.DELETE):
            return True
        return options.combine_before_insert

    def keeps_known(self, config: TableConfig, *, is_hashed: bool = False) -> bool:
        """Whether rows of keys that a file holds already go beside them; a sorted layout or a hash merges them."""
        return not (self.looks_up or config.is_lsm_tree or is_hashed)


_REPLACING = frozenset({Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE, Operation.DELETE_PARTITION})
