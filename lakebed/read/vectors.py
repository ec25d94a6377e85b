"""Merge vectors of a slice by file: which rows of the base file and of each native log are dead.

The vectors are what lets an engine with a Parquet reader of its own read an un-compacted slice: it reads base and logs
side by side and drops the dead rows. They depend on nothing but the set of files, so they can be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.datafile.parquet_metadata import Footers
from lakebed.merge.file_group_reader import FileGroupReader, ReadSplit
from lakebed.merge.merge_vector import merge_vectors


@dataclass(frozen=True, slots=True)
class FileVector:
    """The dead rows of one data file: bit i of word i // 64 is row i."""

    path: str
    rows: int
    dead: int
    words: npt.NDArray[np.uint64]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def slice_vectors(reader: FileGroupReader, split: ReadSplit) -> list[FileVector] | None:
    """A vector for every file of the slice that holds rows; files of deletes hold none.

    None when the files do not fit a plain reader: partial updates, or columns that changed their name or type.
    """
    footers: Footers = {}
    if not reader.fits_natively(split, footers):
        return None
    if not split.slice.log_files and split.slice.base_file is not None:
        return [FileVector(split.slice.base_file.path, 0, 0, np.zeros(0, np.uint64))]
    runs = reader.without_conditions().runs(split.slice, pa.schema([]), sized=False, footers=footers)
    vectors = merge_vectors(runs, reader.shape.rule, memory=reader.options.memory)
    return [
        FileVector(run.label or "", vector.rows, vector.dead, vector.words)
        for run, vector in zip(runs, vectors, strict=True)
        if not run.is_delete
    ]
