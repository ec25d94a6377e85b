"""Upkeep of a table: what is done to its files without changing what it says."""
