"""Indexes: which file group an incoming row belongs to."""
