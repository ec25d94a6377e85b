"""Names of Avro types, made from column names.

A record or a fixed type of Avro has a name, which must be a word of ASCII letters, digits and underscores and stand for
one type only. Hudi names the types of a column after the column, and so does lakebed; the columns themselves keep their
names, whatever characters these have.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count


def avro_name(text: str) -> str:
    """Avro names are ASCII words; anything else becomes an underscore, as in Hudi's own sanitising."""
    word = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in text)
    return f"_{word}" if not word or word[0].isdigit() else word


def type_names(columns: Sequence[str]) -> dict[str, str]:
    """What the types of columns next to each other are called, each name once.

    A column whose name is an Avro word keeps it. Others have theirs made into one, with a number where that is taken:
    two types of one name would be a schema that no parser accepts.
    """
    found = {name: name for name in columns if avro_name(name) == name}
    taken = set(found)
    for name in columns:
        if name not in found:
            word = avro_name(name)
            numbered = (f"{word}_{number}" for number in count(2))
            found[name] = word if word not in taken else next(one for one in numbered if one not in taken)
            taken.add(found[name])
    return found
