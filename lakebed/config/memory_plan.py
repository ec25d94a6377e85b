"""One ceiling in bytes, divided: every share of `memory=` is declared here, and all work takes its share from here.

    ceiling ──► write       buffers, look-up, tasks     each task: its merge, an unfinished row group, queued rows
            ──► reader      a merge per thread          each merge: sources, the current window, sorts
            ──► compaction  tasks                       each task: reading and merging, a row group, queued rows
            ──► clustering  tasks                       each task: reading, sorting, a row group, queued rows
            ──► check       reading, buffered keys, keys that are compared

Shares count bytes of Arrow data. Decoders, dictionaries and memory that the allocator retains come on top, which is
why most divisions leave one half unused. Pure values: tests fix them, and no other module divides memory.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MEMORY = 512 << 20
"""The ceiling of reads, table services and checks where none is set."""
DEFAULT_WRITE_MEMORY = 1 << 30
"""The ceiling of a write: twice that of a read, because rows of a write are unsorted, and rows that are sorted in one
piece need not be spilled to disk. A read merges files that are sorted already, and often runs beside other reads."""

READ_BUFFER = 10 << 20
"""How much of each sorted run is read ahead while merging, where its share is not smaller."""
KEPT_VECTORS = 256 << 20
"""Merge vectors that a process keeps, whatever the ceilings of its reads."""
SMALLEST_WINDOW = 256 << 10
"""Bytes read ahead of one source of a merge: with less, reads are so short that another pass is cheaper."""
RUN_OVERHEAD = 4 << 20
"""What an open file takes besides its window: decoders, dictionaries, a page of every column."""
SORT_READS = 4
"""A sort buffer is filled in at least this many reads: the last read may exceed the buffer by the size of one read."""
KEY_NUMBERS = 8
"""Base row numbers are kept between two reads of a base file if they take 1/8 of the log versions' share or less."""
LARGEST_SORT = 1 << 30
"""Rows that are sorted in one piece, though it takes more than a quarter of the memory; more go in quarters."""
LEAST_SCAN = 1 << 20
"""A scan that serves other work gets at least this, however small the ceiling: four windows."""
LEAST_TASK = 2 << 20
"""A task that writes a file gets at least this: a row group and a merge of two windows."""
DECENT_TASK = 16 << 20
"""Bytes for a task that merges and writes: less makes many passes, so fewer tasks run at once then."""
DECENT_COMPACTION = 256 << 20
"""Memory of a compaction task: with less, windows are so small that two tasks at once take longer than one after the
other; one task uses two cores anyway, one for merging and one for encoding."""
STORED_BATCH = 4 << 20
"""Rows of a group buffer are stored on disk in batches of at most this many bytes."""
LEAST_STORED = 64 << 10
"""And of at least this many, if there are as many: rows are read back batch by batch, and tiny batches are slow."""
MOST_PARTS = 256
"""Buffers that one is divided into at once, whatever the memory: as many files are open at once."""
LEAST_PART = 16 << 10
"""What each of them may hold on average; with less memory a buffer is split into fewer, in several rounds."""
LOCATION_BYTES = 160
"""What a key takes in a look-up besides its text: hashes, numbers, the file id and instant of its location."""
GROUPING_BYTES = 48
"""What a key takes while it is compared besides its text: a hash, numbers, and its slot in a hash table."""
KEY_ROW_BYTES = 256
"""What a row of a key and a partition path takes while a file is decoded, generously."""
LEAST_ROWS = 8_192
"""Rows of a batch, however small the memory: with less, a batch costs more than its rows."""
KEY_COPIES = 3
"""How often the text of a key is there while it is looked up or compared: as it came, distinct, and in the answer."""


@dataclass(frozen=True, slots=True)
class MergeMemory:
    """The ceiling of one merge of runs: half for what sources read ahead, half for the current window."""

    ceiling: int

    @property
    def sources(self) -> int:
        """What all sources together read ahead: half, because the window is concatenated from it."""
        return self.ceiling // 2

    @property
    def base_source(self) -> int:
        """What a base file reads ahead, at most: taken before the logs divide the rest, as it has the most rows."""
        return self.ceiling // 10

    def log_source(self, logs: int, base: int) -> int:
        """What each log reads ahead, where the base file has taken `base` bytes."""
        return (self.sources - base) // max(logs, 1)

    @property
    def window(self) -> int:
        """The rows of the current window: a sixth, as their concatenated copy and the output need as much each."""
        return max(1, self.ceiling // 6)

    @property
    def untouched(self) -> int:
        """A batch of a base file without changes: a third, because the file decodes the next one meanwhile."""
        return self.ceiling // 3

    @property
    def sort_buffer(self) -> int:
        """Unsorted rows that become one sorted piece: a quarter, because sorting holds them twice."""
        return max(1, self.ceiling // 4)

    def sorted_kept(self, held: int) -> int:
        """Sorted pieces that stay in memory beside `held` bytes of earlier ones; others are spilled to disk."""
        return self.ceiling // 4 - held

    def sorts_at_once(self, size: int, held: int) -> bool:
        """Whether `size` unsorted bytes are sorted in one piece and kept: no sources need memory then."""
        return size < min(self.ceiling - held, LARGEST_SORT)

    @property
    def fan_in(self) -> int:
        """Sources that are merged at once: as many as have a smallest window in their half, one left for the rest."""
        return max(2, self.ceiling // (2 * SMALLEST_WINDOW) - 1)

    @property
    def log_versions(self) -> int:
        """Log rows that a hash merge holds: half, because base batches and their output need the rest."""
        return self.ceiling // 2

    @property
    def incoming_keys(self) -> int:
        """Keys that a write holds to count updates while it merges: a quarter, else they are counted by rows."""
        return self.ceiling // 4


@dataclass(frozen=True, slots=True)
class WriteTaskMemory:
    """The share of one task of a write."""

    share: int

    @property
    def merge(self) -> MergeMemory:
        """The merge of existing with incoming rows: half."""
        return MergeMemory(self.share // 2)

    @property
    def row_group(self) -> int:
        """Rows of an unfinished row group, or of an unfinished log block: a quarter."""
        return self.share // 4

    @property
    def write_buffer(self) -> int:
        """Rows queued for encoding: an eighth, and the encoder holds about as much."""
        return self.share // 8

    @property
    def buffers(self) -> int:
        """Incoming rows of a Spark task, which has its own buffers: half of what its merge takes afterwards."""
        return self.merge.ceiling // 2


@dataclass(frozen=True, slots=True)
class WriteMemory:
    """The ceiling of a write. Half of it is allocated to shares: the allocator may retain as much again."""

    ceiling: int

    @property
    def working(self) -> int:
        return self.ceiling // 2

    @property
    def buffers(self) -> int:
        """Incoming rows by file group, before they are spilled to disk: a quarter of the working half."""
        return self.working // 4

    @property
    def tasks(self) -> int:
        """All tasks together: half of the working half; buffers still hold rows that tasks have not read."""
        return self.working // 2

    @property
    def tasks_at_once(self) -> int:
        return max(1, self.tasks // DECENT_TASK)

    def task(self, count: int) -> WriteTaskMemory:
        """The share of one of `count` tasks that run at once."""
        return WriteTaskMemory(max(LEAST_TASK, self.tasks // count))

    @property
    def scan(self) -> int:
        """Reading rows of the table that a write depends on: a quarter, which tasks need only afterwards."""
        return max(LEAST_SCAN, self.ceiling // 4)

    @property
    def source_rows(self) -> int:
        """Rows of the source of a MERGE that stay in memory: a quarter, beside the scan; others are memory-mapped."""
        return self.ceiling // 4

    @property
    def lookup(self) -> LookupMemory:
        return LookupMemory(self.ceiling)


@dataclass(frozen=True, slots=True)
class LookupMemory:
    """Finding the file groups of incoming keys by reading keys of files, before tasks run; buffers hold rows."""

    ceiling: int

    @property
    def keys(self) -> int:
        """Keys that are looked up in one pass, with their locations: a quarter; more keys take more passes."""
        return max(LEAST_SCAN, self.ceiling // 4)

    @property
    def reading(self) -> int:
        """Merges of slices that decide whether a key has a live row, all threads together: a quarter."""
        return max(LEAST_SCAN, self.ceiling // 4)

    def reader(self, readers: int) -> int:
        """The share of each of `readers` readers that run at once."""
        return max(1, self.reading // max(1, readers))

    def passes(self, rows: int, nbytes: int) -> int:
        """In how many passes `rows` rows are looked up, whose keys and partition paths take `nbytes` bytes."""
        return -(-(KEY_COPIES * nbytes + LOCATION_BYTES * rows) // self.keys)


@dataclass(frozen=True, slots=True)
class BufferMemory:
    """The ceiling of group buffers."""

    ceiling: int

    @property
    def part(self) -> int:
        """Batches are split by group in slices of an eighth, as several are processed at once besides the buffers."""
        return self.ceiling // 8

    @property
    def stored_batch(self) -> int:
        """Rows are spilled to disk in batches of a sixty-fourth, so that many buffers can be read side by side."""
        return min(STORED_BATCH, max(LEAST_STORED, self.ceiling // 64))

    @property
    def fan_out(self) -> int:
        """Buffers that one is split into at once: each has an open file, and its writes should not be tiny."""
        return max(8, min(MOST_PARTS, self.ceiling // LEAST_PART))


@dataclass(frozen=True, slots=True)
class CompactionMemory:
    """The share of one compaction task. A row group is there a second time while it is encoded."""

    share: int

    @property
    def reading(self) -> int:
        """Reading and merging the slice: three eighths."""
        return self.share * 3 // 8

    @property
    def row_group(self) -> int:
        return self.share // 8

    @property
    def log_block(self) -> int:
        """A block of a log: a quarter, as it is encoded instead of a row group and its copy."""
        return self.share // 4

    @property
    def write_buffer(self) -> int:
        return self.share // 16


@dataclass(frozen=True, slots=True)
class ClusteringMemory:
    """The share of one clustering task. A row group is there a second time while it is encoded."""

    share: int

    @property
    def reading(self) -> int:
        """Reading and merging each slice: a quarter, shared by the slices that are read at once."""
        return self.share // 4

    @property
    def sorting(self) -> MergeMemory:
        """Sorting the rows of all slices by columns: a quarter."""
        return MergeMemory(self.share // 4)

    def by_key(self, slices: int) -> MergeMemory:
        """Merging `slices` slices by key: a quarter; more than can be open at once are merged in passes."""
        merge, at_once = MemoryPlan(self.share // 4 * 2).merge_of(slices), max(2, self.share // 4 // RUN_OVERHEAD)
        if slices <= at_once:
            return merge
        return MergeMemory(min(merge.ceiling, 2 * SMALLEST_WINDOW * (at_once + 1)))

    @property
    def row_group(self) -> int:
        return self.share // 8

    @property
    def write_buffer(self) -> int:
        return self.share // 16


@dataclass(frozen=True, slots=True)
class CheckMemory:
    """The ceiling of a check: first all keys are read and buffered, then they are compared part by part."""

    ceiling: int

    @property
    def reading(self) -> int:
        """Merging slices, all threads together: a quarter."""
        return max(LEAST_SCAN, self.ceiling // 4)

    def reader(self, readers: int) -> int:
        """The share of each of `readers` readers that run at once."""
        return max(1, self.reading // max(1, readers))

    def batch_rows(self, readers: int) -> int:
        """Rows in a batch of each reader, of a key and a partition path."""
        return max(LEAST_ROWS, self.reader(readers) // KEY_ROW_BYTES)

    @property
    def buffers(self) -> int:
        """Buffered keys, before they are spilled to disk: an eighth."""
        return max(1, self.ceiling // 8)

    @property
    def compared(self) -> int:
        """Keys that are compared at once, with what grouping them takes: half, because reading is done by then."""
        return max(1, self.ceiling // 2)

    def passes(self, rows: int, nbytes: int) -> int:
        """In how many parts `rows` rows of key and file group are compared, of `nbytes` bytes."""
        return -(-(KEY_COPIES * nbytes + GROUPING_BYTES * rows) // self.compared)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What each kind of work may take of one ceiling. Work of different kinds runs one after the other."""

    ceiling: int = DEFAULT_MEMORY

    @property
    def write(self) -> WriteMemory:
        return WriteMemory(self.ceiling)

    @property
    def merge(self) -> MergeMemory:
        """A merge that has the whole ceiling."""
        return MergeMemory(self.ceiling)

    def merge_of(self, runs: int) -> MergeMemory:
        """A merge of `runs` files: half, less what open files take; decoding and the allocator need the other half.

        Never less than an eighth: if open files take more than the half, they are merged in passes.
        """
        return MergeMemory(max(1, self.ceiling // 8, self.ceiling // 2 - runs * RUN_OVERHEAD))

    def part(self, parts: int) -> int:
        """What each of several readers at once may take."""
        return max(1, self.ceiling // max(1, parts))

    @property
    def kept_vectors(self) -> int:
        """Merge vectors that a process keeps for later reads: half, beside what reading takes."""
        return self.ceiling // 2

    @property
    def new_vectors(self) -> int:
        """Vectors of one slice while they are made: a quarter, else they cost more than they save."""
        return self.ceiling // 4

    @property
    def ordered_rows(self) -> int:
        """A batch in key order by merge vectors, and again what its runs read ahead together: an eighth each."""
        return self.ceiling // 8

    @property
    def compactions_at_once(self) -> int:
        return max(1, self.ceiling // DECENT_COMPACTION)

    def compaction(self, count: int) -> CompactionMemory:
        """The share of one of `count` compaction tasks that run at once."""
        return CompactionMemory(max(2 * LEAST_TASK, self.ceiling // count))

    @property
    def rewrites_at_once(self) -> int:
        """Tasks that merge and write files: half of the ceiling in decent shares, as rows are in memory twice."""
        return max(1, self.ceiling // 2 // DECENT_TASK)

    def clustering(self, count: int) -> ClusteringMemory:
        """One of `count` clustering tasks at once: it reads and sorts beside writing, so at least four small shares."""
        return ClusteringMemory(max(4 * LEAST_TASK, self.ceiling // count))

    @property
    def check(self) -> CheckMemory:
        return CheckMemory(self.ceiling)
