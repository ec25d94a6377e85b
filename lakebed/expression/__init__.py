"""Conditions and values from SQL text: bound, typed, run over Arrow batches, and used to skip files."""
