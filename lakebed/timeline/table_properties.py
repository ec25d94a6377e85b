"""Finds, reads and replaces `hoodie.properties`, with its backup.

    replace:   write hoodie.properties.backup (the old)  ->  rewrite hoodie.properties  ->  delete the backup

A writer that dies in the middle leaves a missing or half-written file, and the backup then counts. A file is complete
when it names the table and its version and its checksum fits; while there is a backup beside it, a file without a
checksum is taken as half-written. Lakebed's own rewrite is one compare-and-swap, so that of two programs that change
the file at once neither undoes the other; the backup is for programs whose writes are not atomic, and costs two
requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from lakebed.config.read_options import TableConfig
from lakebed.errors import ConflictError, CorruptTable, StorageUnavailable, TableNotFound
from lakebed.format.names import HOODIE_DIR, PROPERTIES_BACKUP_FILE, PROPERTIES_FILE, TEMP_DIR
from lakebed.format.table_files import (
    CHECKSUM_KEY,
    TABLE_NAME_KEY,
    parse_properties,
    render_properties,
    table_checksum,
    verify_checksum,
)
from lakebed.storage.storage import Storage

_VERSION_KEY = "hoodie.table.version"
_LOOKED_AT = 50
_SHOWN = 5
_TRIES = 20


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
    if any(storage.list(HOODIE_DIR)) or any(folder != TEMP_DIR for folder in storage.list_folders(HOODIE_DIR)):
        raise CorruptTable(
            "the table's properties are missing, and so is their backup",
            file=PROPERTIES_FILE,
            hint="Restore the file from a copy, or create the table anew elsewhere and copy the data.",
        )
    raise TableNotFound(f"there is no table at {storage.url}: {_what_is_there(storage)}")


def update_properties(
    storage: Storage, changes: Mapping[str, str], removals: Collection[str] = (), *, comment: str = "Updated by lakebed"
) -> TableConfig:
    """Set and remove properties in one step; the configuration as it is then. Safe to do again after any failure."""
    for _ in range(_TRIES):
        data, version = _current(storage)
        properties = parse_properties(data, PROPERTIES_FILE)
        wanted = {key: value for key, value in properties.items() if key not in removals} | dict(changes)
        wanted[CHECKSUM_KEY] = str(table_checksum(wanted))
        config = TableConfig.from_properties(wanted, PROPERTIES_FILE)
        if wanted == properties:
            storage.delete([PROPERTIES_BACKUP_FILE])
            return config
        storage.put(PROPERTIES_BACKUP_FILE, data)
        rendered = render_properties(wanted, [comment])
        if _swapped(storage, rendered, version):
            storage.delete([PROPERTIES_BACKUP_FILE])
            return config
    raise ConflictError("others keep changing the table's properties", file=PROPERTIES_FILE)


def _current(storage: Storage) -> tuple[bytes, str]:
    """The properties to start from, with their version; a rewrite that was interrupted is undone first."""
    load_table_config(storage)  # raises when neither the file nor the backup is complete
    try:
        data, version = storage.read_versioned(PROPERTIES_FILE)
    except FileNotFoundError:
        storage.put_if_absent(PROPERTIES_FILE, storage.read(PROPERTIES_BACKUP_FILE))
        return storage.read_versioned(PROPERTIES_FILE)
    backup = _backup(storage)
    if backup is None:
        return data, version
    try:
        is_whole = CHECKSUM_KEY in (_whole(storage, PROPERTIES_FILE) or {})
    except CorruptTable:
        is_whole = False
    if not is_whole:
        storage.compare_and_swap(PROPERTIES_FILE, storage.read(PROPERTIES_BACKUP_FILE), version)
        return storage.read_versioned(PROPERTIES_FILE)
    return data, version


def _swapped(storage: Storage, data: bytes, version: str) -> bool:
    """Whether the file now holds our bytes; after a lost answer it is read back."""
    try:
        return storage.compare_and_swap(PROPERTIES_FILE, data, version)
    except StorageUnavailable:
        if storage.read(PROPERTIES_FILE) == data:
            return True
        raise


def _whole(storage: Storage, file: str) -> dict[str, str] | None:
    """The properties, None when there is no such file; an incomplete file is corrupt."""
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
    """What the folder holds, as a sentence, in case the path is one folder too high or too low."""
    folders = list(islice(storage.list_folders(""), _LOOKED_AT))
    files = [info.name for info in islice(storage.list(""), _LOOKED_AT)]
    if not folders and not files:
        return "the location is empty or does not exist. Check the path, or create the table"
    tables = [folder for folder in folders if storage.stat(f"{folder}/{PROPERTIES_FILE}") is not None]
    if tables:
        return f"but it holds tables: {_some(tables)}. Open one of those"
    return f"it has no {HOODIE_DIR} folder, but holds {_some([*folders, *files])}. Check the path"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more
