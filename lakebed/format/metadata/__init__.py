"""Keys and records of the metadata table."""
