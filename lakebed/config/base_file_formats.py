"""The formats of base files: values of `hoodie.table.base.file.format`, which in lower case are file extensions.

Names and extensions are recognised by this list alone; the reader of a format is a `BaseFileFormat` of `datafile/`,
loaded when a file is opened. A new format is a file with its `BaseFileFormat` and a line here. Other distributions
register theirs, or declare an entry point of the group `lakebed.base_file_formats` under the format's name.
"""

from __future__ import annotations

from lakebed.registry import Registry

BASE_FILE_FORMATS = Registry(
    "lakebed.base_file_formats",
    {
        "PARQUET": "lakebed.datafile.parquet_source:PARQUET_FORMAT",
        "ORC": "lakebed.datafile.orc_source:ORC_FORMAT",
        "HFILE": "lakebed.datafile.base_file_formats:HFILE",
        "LANCE": "lakebed.datafile.base_file_formats:LANCE",
    },
)
