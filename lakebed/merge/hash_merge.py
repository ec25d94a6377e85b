from lakebed.merge.sorted_merge import sorted_merge as hash_merge
