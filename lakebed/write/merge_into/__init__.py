"""MERGE: clauses, the join with the source, one commit."""
