"""On-disk grammars: bytes to values and back, without I/O."""
