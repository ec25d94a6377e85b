"""lakebed: a lakehouse table engine that reads and writes Apache Hudi tables in an LSM-tree layout.

import lakebed
t = lakebed.open("/data/orders")
t.scan(columns=["id", "qty"], filter="qty > 3").to_pandas()
"""

from importlib import import_module
from typing import Any

from lakebed.errors import (
    ConflictError,
    CorruptTable,
    InvalidRequest,
    LakebedError,
    StorageUnavailable,
    TableNotFound,
    UnsupportedFormat,
)
from lakebed.merge.record_merger import RecordMerger, register_merger
from lakebed.model.record_key import register_key_generator
from lakebed.open_table import create, open, read  # noqa: A004 - `lakebed.open` is the front door
from lakebed.read.scan import Scan
from lakebed.table import Table
from lakebed.write.job import CommitResult

__version__ = "0.1.0"

__all__ = [
    "CommitResult",
    "ConflictError",
    "CorruptTable",
    "InvalidRequest",
    "LakebedError",
    "RecordMerger",
    "Scan",
    "StorageUnavailable",
    "Table",
    "TableNotFound",
    "UnsupportedFormat",
    "create",
    "open",
    "read",
    "register_key_generator",
    "register_merger",
]


def __getattr__(name: str) -> Any:
    """`lakebed.spark` is loaded when it is asked for: pyspark need not be installed."""
    if name == "spark":
        return import_module("lakebed.spark")
    raise AttributeError(f"module 'lakebed' has no attribute {name!r}")
