"""Which files make up a table at a time, and which of them a query can skip."""
