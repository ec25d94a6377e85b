"""What several files of a group say together: key order, the k-way merge, and which version of a key wins."""
