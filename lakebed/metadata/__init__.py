"""The metadata table: what a table knows about itself without listing a folder or opening a data file."""
