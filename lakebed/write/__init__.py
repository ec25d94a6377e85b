"""The write path: rows to file groups, tasks, commits."""
