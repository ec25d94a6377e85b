"""From what a user hands over to rows per file group."""
