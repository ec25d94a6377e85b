"""What the k-way merge costs over decoding the same files: `python benchmarks/merge_kernel.py [--rows 2000000]`.

One core, Arrow's threads off, CPU seconds, best of three. A base file of N rows and 15 columns (Hudi's five meta
columns among them) and 4 or 16 logs of N/20 rows, zstd Parquet; keys are sequential, random (UUID text) or long with a
shared prefix. `decode` reads all files batch by batch and drops the batches; `merge` is the same under `sorted_merge`.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.config.merge_settings import MergeMode
from lakebed.merge.merge_vector import columns_for_vectors, merge_vectors
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import sorted_merge

RULES = {
    "commit": MergeRule(MergeMode.COMMIT_TIME),
    "event": MergeRule(MergeMode.EVENT_TIME, ordering=("ts",)),
}


def keys_of(kind: str, numbers: np.ndarray) -> pa.Array:
    if kind == "sequential":
        text = [f"key-{n:010d}" for n in numbers.tolist()]
    elif kind == "prefix":
        text = [f"tenant:acme,order:{n // 50:08d},line:{n % 50:04d}" for n in numbers.tolist()]
    else:
        mixed = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).tolist()
        text = [f"{m:016x}-0000-4000-8000-{n:012x}" for m, n in zip(mixed, numbers.tolist(), strict=True)]
    return pa.array(text)


def table_of(kind: str, numbers: np.ndarray, instant: str, rng: np.random.Generator) -> pa.Table:
    rows = len(numbers)
    same = pa.array(np.zeros(rows, np.int8))
    words = pa.array(["alpha", "beta", "gamma", "delta", "epsilon", "a longer phrase of text"])
    order = rng.integers(0, 1 << 40, rows)
    columns = {
        "_hoodie_commit_time": pa.array([instant]).take(same),
        "_hoodie_commit_seqno": pa.array([f"{instant}_0_{n}" for n in range(rows)]),
        "_hoodie_record_key": keys_of(kind, numbers),
        "_hoodie_partition_path": pa.array(["2026/11/15"]).take(same),
        "_hoodie_file_name": pa.array([f"{'f' * 36}-0_0-1-1_{instant}.parquet"]).take(same),
        "id": pa.array(numbers.astype(np.int64)),
        "ts": pa.array(np.full(rows, int(instant[-6:]), np.int64)),
        "amount": pa.array(rng.random(rows)),
        "score": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
        "count": pa.array(rng.integers(0, 1000, rows).astype(np.int32)),
        "at": pa.array(order, pa.timestamp("us")),
        "flag": pa.array(rng.random(rows) < 0.5),
        "city": words.take(pa.array(rng.integers(0, 6, rows))),
        "note": pa.array([f"note {n} of {m}" for n, m in zip(range(rows), order.tolist(), strict=True)]),
        "code": pa.array([f"{n:08x}" for n in order.tolist()]),
    }
    table = pa.table(columns)
    return table.sort_by("_hoodie_record_key")


def write(folder: Path, kind: str, rows: int, logs: int) -> list[Path]:
    rng = np.random.default_rng(7)
    paths = [folder / f"{kind}-base.parquet"]
    tables = [table_of(kind, np.arange(rows), "20261115000000000", rng)]
    for number in range(logs):
        chosen = rng.choice(rows * 21 // 20, rows // 20, replace=False)
        tables.append(table_of(kind, chosen, f"2026111500000{number + 1:04d}", rng))
        paths.append(folder / f"{kind}-{number}.parquet")
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, compression="zstd", row_group_size=1 << 17)
    return paths


def runs_of(paths: list[Path], columns: list[str] | None = None) -> list[Run]:
    def opener(path: Path) -> Callable[[int], Iterator[pa.RecordBatch]]:
        def batches(rows: int) -> Iterator[pa.RecordBatch]:
            file = pq.ParquetFile(path)
            names = None if columns is None else [n for n in columns if n in file.schema_arrow.names]
            return file.iter_batches(rows, columns=names, use_threads=False)

        return batches

    return [Run(age, True, opener(path), label=path.name, row_bytes=260) for age, path in enumerate(paths)]


def cpu(work: Callable[[], object], repeat: int) -> float:
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memory", type=int, default=512 << 20)
    parser.add_argument("--keys", nargs="*", default=["sequential", "uuid", "prefix"])
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    print(f"{'keys':<11}{'logs':>5}{'rule':>8}{'decode s':>10}{'merge s':>9}{'ratio':>7}{'ns/row':>8}{'vectors s':>11}")
    with tempfile.TemporaryDirectory() as name:
        for kind in options.keys:
            paths = write(Path(name), kind, options.rows, 16)
            schema = pq.read_schema(paths[0])
            for logs in (4, 16):
                own = paths[: logs + 1]
                rows = options.rows + logs * (options.rows // 20)

                def decode(own: list[Path] = own) -> None:
                    for run in runs_of(own):
                        for _ in run.open(40_000):
                            pass

                plain = cpu(decode, options.repeat)
                for label, rule in RULES.items():

                    def merge(own: list[Path] = own, rule: MergeRule = rule, schema: pa.Schema = schema) -> None:
                        for _ in sorted_merge(runs_of(own), rule, schema, memory=options.memory):
                            pass

                    def vectors(own: list[Path] = own, rule: MergeRule = rule) -> None:
                        merge_vectors(runs_of(own, list(columns_for_vectors(rule))), rule, memory=options.memory)

                    merged, bits = cpu(merge, options.repeat), cpu(vectors, options.repeat)
                    print(
                        f"{kind:<11}{logs:>5}{label:>8}{plain:>10.2f}{merged:>9.2f}{merged / plain:>7.2f}"
                        f"{(merged - plain) / rows * 1e9:>8.0f}{bits:>11.2f}"
                    )


if __name__ == "__main__":
    main()
