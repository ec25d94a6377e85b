"""Which file group every incoming row goes to."""
