"""Finding a table: `hoodie.properties`, its backup, and a helpful answer when there is neither.

    replace:   write hoodie.properties.backup (the old)  ->  rewrite hoodie.properties  ->  delete the backup

A writer that dies in the middle leaves a missing or half-written file, and the backup is then the truth. A file is
whole when it names the table and its version and its checksum fits; while a backup lies beside it, a file without a
checksum is taken for half-written.
"""

from __future__ import annotations

from itertools import islice

from lakebed.config.options import TableConfig
from lakebed.errors import CorruptTable, TableNotFound
from lakebed.format.names import HOODIE_DIR, PROPERTIES_BACKUP_FILE, PROPERTIES_FILE
from lakebed.format.table_files import CHECKSUM_KEY, TABLE_NAME_KEY, parse_properties, verify_checksum
from lakebed.storage.storage import Storage

_VERSION_KEY = "hoodie.table.version"
_LOOKED_AT = 50
_SHOWN = 5


def load_table_config(storage: Storage) -> TableConfig:
    """The table's configuration, from `hoodie.properties` or its backup."""
    try:
        properties = _whole(storage, PROPERTIES_FILE)
    except CorruptTable as error:
        backup = _backup(storage)
        if backup is None:
            raise error
        return TableConfig.from_properties(backup, PROPERTIES_BACKUP_FILE)
    if properties is not None and CHECKSUM_KEY in properties:
        return TableConfig.from_properties(properties, PROPERTIES_FILE)
    backup = _backup(storage)
    if backup is not None and (properties is None or CHECKSUM_KEY in backup):
        return TableConfig.from_properties(backup, PROPERTIES_BACKUP_FILE)
    if properties is not None:
        return TableConfig.from_properties(properties, PROPERTIES_FILE)
    if any(True for _ in storage.list(HOODIE_DIR)) or any(True for _ in storage.list_folders(HOODIE_DIR)):
        raise CorruptTable(
            "the table's properties are missing, and so is their backup",
            file=PROPERTIES_FILE,
            hint="Restore the file from a copy, or create the table anew elsewhere and copy the data.",
        )
    raise TableNotFound(f"there is no table at {storage.url}: {_what_is_there(storage)}")


def _whole(storage: Storage, file: str) -> dict[str, str] | None:
    """The properties, None when there is no such file; a file that is not whole is corrupt."""
    try:
        data = storage.read(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    properties = parse_properties(data, file)
    missing = [key for key in (TABLE_NAME_KEY, _VERSION_KEY) if not properties.get(key)]
    if missing:
        raise CorruptTable(
            f"{' and '.join(missing)} missing: the file is cut off or not that of a table",
            file=file,
            hint="Restore hoodie.properties from a copy.",
        )
    verify_checksum(properties, file)
    return properties


def _backup(storage: Storage) -> dict[str, str] | None:
    try:
        return _whole(storage, PROPERTIES_BACKUP_FILE)
    except CorruptTable:
        return None


def _what_is_there(storage: Storage) -> str:
    """A sentence on what the folder holds, for those who are one folder too high or too low."""
    folders = list(islice(storage.list_folders(""), _LOOKED_AT))
    files = [info.name for info in islice(storage.list(""), _LOOKED_AT)]
    if not folders and not files:
        return "the place is empty or does not exist. Check the path, or create the table"
    tables = [folder for folder in folders if storage.stat(f"{folder}/{PROPERTIES_FILE}") is not None]
    if tables:
        return f"but it holds tables: {_some(tables)}. Open one of those"
    return f"it has no {HOODIE_DIR} folder, but holds {_some([*folders, *files])}. Check the path"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more
