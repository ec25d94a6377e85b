"""Hudi's metadata table: listings, statistics and index entries without listing folders or opening data files."""
