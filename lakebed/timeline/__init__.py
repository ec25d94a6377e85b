"""The timeline of a table: clock, active timeline, history, and the client of one table."""
