"""Values that everyone shares."""
