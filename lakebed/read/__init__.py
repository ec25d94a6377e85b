"""Scans and read plans."""
