"""What other distributions plug into lakebed: a value per thing, and one call, or one entry point, that makes it known.

| thing | value | call | entry point group |
|---|---|---|---|
| storage of a URL scheme | `StorageScheme` | `register_storage` | `lakebed.storages` |
| lock provider | `LockType` | `register_lock_provider` | `lakebed.lock_providers` |
| index kind | `IndexKind` | `register_index_kind` | `lakebed.indexes` |
| base file format | `BaseFileFormat` | `register_base_file_format` | `lakebed.base_file_formats` |

A call counts for the process that makes it. Tasks on Spark executors are other processes: what they need is declared as
an entry point, `name = "package.module:VALUE"`, of a distribution that is installed there as well.
"""

from __future__ import annotations

from lakebed.datafile.base_file_formats import BaseFileFormat, OpenOptions, register_base_file_format
from lakebed.datafile.source import BaseFileSource
from lakebed.index.kinds import IndexKind, register_index_kind
from lakebed.index.locations import Index, IndexContext, KeyLocation, Places
from lakebed.storage.open import StorageScheme, register_storage
from lakebed.storage.storage import Storage
from lakebed.txn.lock_types import LockRequest, LockType, register_lock_provider
from lakebed.txn.locks import Lease, LockProvider

__all__ = [
    "BaseFileFormat",
    "BaseFileSource",
    "Index",
    "IndexContext",
    "IndexKind",
    "KeyLocation",
    "Lease",
    "LockProvider",
    "LockRequest",
    "LockType",
    "OpenOptions",
    "Places",
    "Storage",
    "StorageScheme",
    "register_base_file_format",
    "register_index_kind",
    "register_lock_provider",
    "register_storage",
]
