"""Writes the pages that are derived from the source: options, expressions, byte pictures and the tables of modules.

python docs/generate.py          write docs/configs.md, docs/expressions.md, docs/format/*.md, docs/architecture.md
python docs/generate.py --check  fail if a page is out of date
"""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

import module_tables
from expression_tables import filled

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.compaction_options import CompactionOptions
from lakebed.config.option import markdown_table
from lakebed.config.read_options import ReadOptions, TableConfig
from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, TtlOptions
from lakebed.config.write_options import WriteOptions
from lakebed.index.options import IndexOptions
from lakebed.txn.options import TxnOptions

ROOT = Path(__file__).parent
GROUPS = (
    ("Reading", ReadOptions, "Given to `lakebed.open(options=...)`, `scan(options=...)` or by name."),
    ("Writing", WriteOptions, "Given to each write as `options={...}`, or to `lakebed.open`."),
    ("Indexes", IndexOptions, "Kept in the table's properties by `lakebed.create`; a write may add what they lack."),
    ("Compaction", CompactionOptions, "Given to `t.services.compact(options=...)`, or to a write for what follows it."),
    ("Clustering", ClusteringOptions, "Given to `t.services.cluster(options=...)`, or to a write for what follows it."),
    ("Cleaning", CleanOptions, "What `services.clean` and the clean after a write keep."),
    ("Archiving", ArchiveOptions, "When `services.archive` and a write move old actions into the history."),
    ("Partition lifetimes", TtlOptions, "Which partitions `services.drop_expired_partitions` lets vanish."),
    (
        "Transactions",
        TxnOptions,
        "How writers are kept apart. With several writers the table itself keeps the mode and the lock, for all of "
        "them ([why](decisions/0020-the-concurrency-mode-belongs-to-the-table.md)): a call may ask for a stricter "
        "mode, and `t.services.set_concurrency(mode)` changes it on purpose.",
    ),
    ("Table properties", TableConfig, "What `hoodie.properties` says; set when a table is made."),
)
FORMATS = {
    "names.md": ("names",),
    "properties.md": ("table_files",),
    "timeline.md": ("timeline/files", "avro/container"),
    "log_v1.md": ("log/block", "log/v1", "log/block_content", "avro/columns"),
    "log_v2.md": ("log/v2",),
    "hfile.md": ("hfile/reader", "hfile/layout", "hfile/writer"),
    "metadata.md": ("metadata/keys", "metadata/records"),
    "bloom_filter.md": ("bloom_filter",),
    "parquet_footer.md": ("parquet/footer",),
    "hashing_meta.md": ("hashing_meta",),
}


def pages() -> dict[Path, str]:
    """Every derived page and its text."""
    options = [
        "# Options",
        "",
        "Made from the declarations in `lakebed/config`; `make docs` writes this page anew.",
        "",
    ]
    for title, group, where in GROUPS:
        options += [f"## {title}", "", where, "", markdown_table(group).strip(), ""]
    expressions = ROOT / "expressions.md"
    architecture = ROOT / "architecture.md"
    found = {
        architecture: module_tables.filled(architecture.read_text(encoding="utf-8"), ROOT.parent / "lakebed"),
        ROOT / "configs.md": "\n".join(options).rstrip() + "\n",
        expressions: filled(expressions.read_text(encoding="utf-8")),
    }
    for name, modules in FORMATS.items():
        parts = ["<!-- Made from the docstrings of the codecs by `make docs`. -->", ""]
        for module in modules:
            source = ROOT.parent / "lakebed" / "format" / f"{module}.py"
            text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
            title, _, rest = text.partition("\n")
            parts += [f"# `lakebed/format/{module}.py`", "", title, "", textwrap.dedent(rest).strip(), ""]
        found[ROOT / "format" / name] = "\n".join(parts).rstrip() + "\n"
    return found


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them."""
    stale = []
    for path, text in pages().items():
        if "--check" in arguments:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(path.relative_to(ROOT.parent))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path} is out of date: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
