"""Log files: blocks, their two containers and their contents."""
