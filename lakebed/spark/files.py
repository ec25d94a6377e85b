"""Whether Spark can open a table's files itself, tried once per session and scheme.

The PySpark wheel has a local file system and no connector for any object store; a cluster may have some. lakebed opens
stores by itself, so rows of a store that Spark cannot open go through Python instead. Hadoop has its own names for some
schemes (`s3a` for `s3`), and those are tried as well.
"""

from __future__ import annotations

import weakref

from pyspark.sql import SparkSession

LOCAL = "file"
_OTHER_NAMES = {"s3": "s3a", "gcs": "gs", "az": "abfss"}
_KNOWN: weakref.WeakKeyDictionary[SparkSession, dict[str, str]] = weakref.WeakKeyDictionary()
"""By session: the scheme and authority of a store -> Spark's name for it, or empty when it cannot open it."""


def why_unreadable(spark: SparkSession, url: str, path: str) -> str | None:
    """Why Spark cannot open a file of the table at `url`; None when it can."""
    scheme, store, _ = _parts(url)
    if scheme == LOCAL:
        return None
    known = _KNOWN.setdefault(spark, {})
    if store not in known:
        names = [name for name in (scheme, _OTHER_NAMES.get(scheme)) if name]
        opened = (name for name in names if _opens(spark, f"{name}{url[len(scheme) :].rstrip('/')}/{path}"))
        known[store] = next(opened, "")
    return None if known[store] else f"Spark here cannot open {scheme}://"


def spark_location(spark: SparkSession, url: str) -> str:
    """The table's location under the scheme that Spark opens."""
    scheme, store, _ = _parts(url)
    name = _KNOWN.get(spark, {}).get(store) or scheme
    return f"{name}{url[len(scheme) :].rstrip('/')}"


def case_sensitive(spark: SparkSession) -> bool:
    """Whether names that differ by case are different names in this session."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def _opens(spark: SparkSession, file: str) -> bool:
    try:
        spark.read.schema("nothing INT").parquet(file).schema  # noqa: B018 - plans the read, which looks for the file
    except Exception:  # no connector, no credentials or no network: Spark cannot open it in any of these cases
        return False
    return True


def _parts(url: str) -> tuple[str, str, str]:
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    return scheme.lower(), f"{scheme.lower()}://{authority}", path
