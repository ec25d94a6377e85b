"""Data files, read and written: base files and log files."""
