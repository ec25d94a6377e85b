"""Data files, read and written: base files and logs."""
