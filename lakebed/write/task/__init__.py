"""The body of a write task."""
