"""One ceiling in bytes, divided: every share of `memory=` is declared here, and all work takes its share from here.

    ceiling ──► write       buffers, look-up, tasks     each task: its merge, an unfinished row group, rows that wait
            ──► reader      a merge per thread          each merge: sources, the window at work, sorts
            ──► compaction  tasks                       each task: reading and merging, a row group, rows that wait
            ──► clustering  tasks                       each task: reading, sorting, a row group, rows that wait
            ──► check       reading, keys that wait, keys that are compared

Shares count bytes of Arrow data. Decoders, dictionaries and what the allocator holds back come on top, which is why
most divisions leave a half alone. Pure values: they are pinned by tests, and nothing else divides memory.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MEMORY = 512 << 20
"""The ceiling of reads, table services and checks where nobody chose one."""
DEFAULT_WRITE_MEMORY = 1 << 30
"""The ceiling of a write: twice that of a read, for rows of a write come unsorted, and what is sorted in one go need
not go to disk first. A read merges files that are sorted already, and often runs beside other reads."""

READ_BUFFER = 10 << 20
"""How much of each sorted run is read ahead while merging, where its share is not smaller."""
KEPT_VECTORS = 256 << 20
"""Merge vectors that a process keeps, whatever the ceilings of its reads."""
SMALLEST_WINDOW = 256 << 10
"""Bytes read ahead of one source of a merge: with less, reads are so short that another pass is cheaper."""
RUN_OVERHEAD = 4 << 20
"""What an open file takes besides its window: decoders, dictionaries, a page of every column."""
SORT_READS = 4
"""A sort buffer is filled in so many reads or more: the last one may go beyond it by as much."""
KEY_NUMBERS = 8
"""Numbers of base rows are kept between two reads of a base file if they take a part in so many of log versions."""
LARGEST_SORT = 1 << 30
"""Rows that are sorted in one piece, though it takes more than a quarter of the memory; more go in quarters."""
LEAST_SCAN = 1 << 20
"""A scan that serves other work gets at least this, however small the ceiling: four windows."""
LEAST_TASK = 2 << 20
"""A task that writes a file gets at least this: a row group and a merge of two windows."""
DECENT_TASK = 16 << 20
"""Bytes for a task that merges and writes: less makes many passes, so tasks then rather run one after the other."""
DECENT_COMPACTION = 256 << 20
"""Memory of a task that merges without haste: with less, windows are so small that two tasks take longer than one,
which keeps two cores busy as it is, one merging and one encoding."""
STORED_BATCH = 4 << 20
"""Rows of a group buffer on disk come back together in at most so many bytes."""
LEAST_STORED = 64 << 10
"""And in at least so many, if there are as many: whoever reads rows back works batch by batch."""
MOST_PARTS = 256
"""Buffers that one is divided into at once, whatever the memory: so many files are open together."""
LEAST_PART = 16 << 10
"""What each of them may hold on average; with less, more is written in further rounds."""
PLACE_BYTES = 160
"""What a key takes in a look-up besides its text: hashes, numbers, the file id and instant of its place."""
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
    """The ceiling of one merge of runs: half for what sources read ahead, half for the window at work."""

    ceiling: int

    @property
    def sources(self) -> int:
        """What all sources together read ahead: half, for the window is joined of what they hold."""
        return self.ceiling // 2

    @property
    def base_source(self) -> int:
        """What a base file reads ahead, at most: its rows are the most, so it comes before the logs share the rest."""
        return self.ceiling // 10

    def log_source(self, logs: int, base: int) -> int:
        """What each log reads ahead, where the base file has taken `base` bytes."""
        return (self.sources - base) // max(logs, 1)

    @property
    def window(self) -> int:
        """The rows at work: a sixth, for their joined copy and the output take as much again each."""
        return max(1, self.ceiling // 6)

    @property
    def untouched(self) -> int:
        """A batch of a base file that passes through: a third, for the file decodes the next one meanwhile."""
        return self.ceiling // 3

    @property
    def sort_buffer(self) -> int:
        """Unsorted rows that become one sorted piece: a quarter, for sorting holds them twice."""
        return max(1, self.ceiling // 4)

    def sorted_kept(self, held: int) -> int:
        """Sorted pieces that stay in memory beside `held` bytes of earlier ones; others go to disk."""
        return self.ceiling // 4 - held

    def sorts_at_once(self, size: int, held: int) -> bool:
        """Whether so many unsorted bytes are sorted in one piece and stay: they need no sources besides."""
        return size < min(self.ceiling - held, LARGEST_SORT)

    @property
    def fan_in(self) -> int:
        """Sources that are merged at once: as many as have a smallest window in their half, one left for the rest."""
        return max(2, self.ceiling // (2 * SMALLEST_WINDOW) - 1)

    @property
    def log_versions(self) -> int:
        """Log rows that a hash merge holds: half, for base batches and their output go through the rest."""
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
        """The merge of what is there with what came: half."""
        return MergeMemory(self.share // 2)

    @property
    def row_group(self) -> int:
        """Rows of an unfinished row group, or of an unfinished log block: a quarter."""
        return self.share // 4

    @property
    def write_buffer(self) -> int:
        """Rows that wait for encoding: an eighth, and the encoder holds about as much."""
        return self.share // 8

    @property
    def buffers(self) -> int:
        """Incoming rows of a Spark task, which buffers on its own: half of what its merge takes afterwards."""
        return self.merge.ceiling // 2


@dataclass(frozen=True, slots=True)
class WriteMemory:
    """The ceiling of a write. Half of it is handed out: the allocator holds up to as much again."""

    ceiling: int

    @property
    def working(self) -> int:
        return self.ceiling // 2

    @property
    def buffers(self) -> int:
        """Incoming rows by file group, before they go to disk: a quarter of what is handed out."""
        return self.working // 4

    @property
    def tasks(self) -> int:
        """All tasks together: half of what is handed out; buffers still hold rows that tasks have not taken."""
        return self.working // 2

    @property
    def tasks_at_once(self) -> int:
        return max(1, self.tasks // DECENT_TASK)

    def task(self, count: int) -> WriteTaskMemory:
        """One of so many tasks at once."""
        return WriteTaskMemory(max(LEAST_TASK, self.tasks // count))

    @property
    def scan(self) -> int:
        """Reading rows of the table that a write depends on: a quarter, which tasks need only afterwards."""
        return max(LEAST_SCAN, self.ceiling // 4)

    @property
    def source_rows(self) -> int:
        """Rows of the source of a MERGE that stay in memory: a quarter, beside the scan; others are mapped."""
        return self.ceiling // 4

    @property
    def lookup(self) -> LookupMemory:
        return LookupMemory(self.ceiling)


@dataclass(frozen=True, slots=True)
class LookupMemory:
    """Finding the places of incoming keys by reading the keys of files; tasks have not begun, buffers hold rows."""

    ceiling: int

    @property
    def keys(self) -> int:
        """Keys that are looked up in one pass, with their places: a quarter; more keys take more passes."""
        return max(LEAST_SCAN, self.ceiling // 4)

    @property
    def reading(self) -> int:
        """Merges of slices in which a key must be proven alive, all threads together: a quarter."""
        return max(LEAST_SCAN, self.ceiling // 4)

    def reader(self, readers: int) -> int:
        """What each of so many readers at once may take."""
        return max(1, self.reading // max(1, readers))

    def passes(self, rows: int, nbytes: int) -> int:
        """In how many passes so many rows are looked up, whose keys and partition paths take so many bytes."""
        return -(-(KEY_COPIES * nbytes + PLACE_BYTES * rows) // self.keys)


@dataclass(frozen=True, slots=True)
class BufferMemory:
    """The ceiling of group buffers."""

    ceiling: int

    @property
    def part(self) -> int:
        """Batches are taken apart in parts of an eighth, for several are under way besides the buffers."""
        return self.ceiling // 8

    @property
    def stored_batch(self) -> int:
        """Rows go to disk in batches of a sixty-fourth, so that many buffers can be read side by side."""
        return min(STORED_BATCH, max(LEAST_STORED, self.ceiling // 64))

    @property
    def fan_out(self) -> int:
        """Buffers that one is divided into at once: each has an open file, and writes of a decent size on average."""
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
        """A block of a log: a quarter, for it is encoded in place of a row group and its copy."""
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
        """Reading and merging each slice: a quarter, which slices share that are read at once."""
        return self.share // 4

    @property
    def sorting(self) -> MergeMemory:
        """Sorting the rows of all slices by columns: a quarter."""
        return MergeMemory(self.share // 4)

    def by_key(self, slices: int) -> MergeMemory:
        """Merging so many slices by key: a quarter; more than can be open at once are merged in passes."""
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
    """The ceiling of a check: first all keys are read and put aside, then they are compared part by part."""

    ceiling: int

    @property
    def reading(self) -> int:
        """Merging slices, all threads together: a quarter."""
        return max(LEAST_SCAN, self.ceiling // 4)

    def reader(self, readers: int) -> int:
        """What each of so many readers at once may take."""
        return max(1, self.reading // max(1, readers))

    def batch_rows(self, readers: int) -> int:
        """Rows that each of them hands out at once, of a key and a partition path."""
        return max(LEAST_ROWS, self.reader(readers) // KEY_ROW_BYTES)

    @property
    def buffers(self) -> int:
        """Keys that wait to be compared, before they go to disk: an eighth."""
        return max(1, self.ceiling // 8)

    @property
    def compared(self) -> int:
        """Keys that are compared at once, with what grouping them takes: half, for all of them are read by then."""
        return max(1, self.ceiling // 2)

    def passes(self, rows: int, nbytes: int) -> int:
        """In how many parts so many rows of key and file group are compared."""
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
        """A merge that has the ceiling to itself."""
        return MergeMemory(self.ceiling)

    def merge_of(self, runs: int) -> MergeMemory:
        """A merge of so many files: half, less what they take open; decoding and the allocator hold the other half.

        Never less than an eighth: files that take more than the half are then merged in passes.
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
        """One of so many compaction tasks at once."""
        return CompactionMemory(max(2 * LEAST_TASK, self.ceiling // count))

    @property
    def rewrites_at_once(self) -> int:
        """Tasks that merge and write files: half of the ceiling in decent shares, for rows are there twice."""
        return max(1, self.ceiling // 2 // DECENT_TASK)

    def clustering(self, count: int) -> ClusteringMemory:
        """One of so many clustering tasks at once: it reads and sorts beside writing, so at least four small shares."""
        return ClusteringMemory(max(4 * LEAST_TASK, self.ceiling // count))

    @property
    def check(self) -> CheckMemory:
        return CheckMemory(self.ceiling)
