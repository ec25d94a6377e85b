"""Scans and plans."""
