"""Creating a table."""
