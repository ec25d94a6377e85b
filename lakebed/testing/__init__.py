"""Helpers for tests of tables: injected failures and a clock set by hand."""
