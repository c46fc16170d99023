"""Plain values, secrets, paths into data, and merging."""
