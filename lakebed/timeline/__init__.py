"""What happened to a table: clock, timelines, and the client that answers for one table."""
