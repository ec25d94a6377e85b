"""Avro: container files, records and whole columns."""
