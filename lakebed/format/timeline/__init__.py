"""The bodies of timeline files."""
