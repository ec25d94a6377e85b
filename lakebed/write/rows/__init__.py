"""From the data of a user to rows per file group."""
