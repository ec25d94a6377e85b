"""Parquet footers: schema and statistics."""
