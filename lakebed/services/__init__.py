"""Table services: what is done to the files and the timeline of a table without changing its rows."""
