"""Who may commit, and undoing what did not: instants, locks, heartbeats, markers, rollback, transactions."""
