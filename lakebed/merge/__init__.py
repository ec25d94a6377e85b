"""Merging the files of a file slice: key order, the k-way merge, and which version of a key wins."""
