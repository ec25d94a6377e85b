"""HFile: the sorted key-value file of the metadata table."""
