"""Where a key lives: which file group an incoming row belongs to."""
