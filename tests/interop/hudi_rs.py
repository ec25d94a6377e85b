"""hudi-rs reads tables: {"path": ..., "out": ...} lines in, {"path": ..., "error": ... or null} lines out.

Runs under the peer's Python, where the `hudi` wheel lives. Answers are Arrow IPC files at `out`. Each line is answered
before the next is taken, so that a crash of the native reader is charged to the right table.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from hudi import HudiTable


def read(path: str, out: str) -> None:
    """One snapshot into one file."""
    batches = [pa.record_batch(batch) for batch in HudiTable(path).read()]
    table = pa.Table.from_batches(batches) if batches else pa.table({})
    with pa.OSFile(out, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            read(request["path"], request["out"])
            error = None
        except BaseException as failure:  # a panic of the native reader arrives as one that is no Exception
            error = f"{type(failure).__name__}: {failure}"
        print(json.dumps({"path": request["path"], "error": error}), flush=True)


if __name__ == "__main__":
    main()
