"""Conditions and values from SQL text: bound, typed, run over Arrow batches, and asked what may stay unread."""
