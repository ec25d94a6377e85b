"""Options of writers: what keys mean, what is refused."""

from __future__ import annotations

import pytest

from lakebed.config.option import options_of
from lakebed.config.write_options import Codec, FileOptions, LogBlockFormat, LogNaming, WriteOptions
from lakebed.errors import InvalidRequest


def test_keys_and_text_sizes() -> None:
    options = WriteOptions.from_properties(
        {
            "hoodie.parquet.compression.codec": "GZIP",
            "hoodie.parquet.max.file.size": "268435456",
            "hoodie.logfile.data.block.format": "avro",
            "hoodie.log.naming": "inline",
            "hoodie.index.bloom.fpp": "0.000000001",
            "hoodie.parquet.bloom.filter.enabled": "false",
            "hoodie.something.else": "1",
        }
    )
    assert options.codec is Codec.GZIP
    assert options.max_file_size == 256 << 20
    assert options.log_block_format is LogBlockFormat.AVRO
    assert options.log_naming is LogNaming.INLINE
    assert options.bloom_error_rate == 1e-9
    assert options.bloom_filter is False
    assert WriteOptions.from_properties(options.to_properties()) == options


def test_named_values_go_on_top() -> None:
    options = FileOptions().override({"hoodie.parquet.page.size": "64k"}, max_file_size="1MB", codec=None)
    assert (options.page_size, options.max_file_size, options.codec) == (64 << 10, 1 << 20, Codec.ZSTD)
    assert options.override(FileOptions()) == FileOptions()
    with pytest.raises(InvalidRequest, match="no write option is called colour"):
        options.override(colour="red")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hoodie.parquet.compression.codec", "rar"),
        ("hoodie.index.bloom.fpp", "1.5"),
        ("hoodie.index.bloom.fpp", "often"),
        ("hoodie.index.bloom.num_entries", "0"),
        ("hoodie.parquet.max.file.size", "0"),
        ("lakebed.log.row.group.rows", "-1"),
    ],
)
def test_what_makes_no_sense_is_refused(key: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        FileOptions.from_properties({key: text})


def test_a_write_has_all_options_of_its_files() -> None:
    assert options_of(FileOptions).keys() <= options_of(WriteOptions).keys()
    assert isinstance(WriteOptions(), FileOptions)
