"""Data functions: where a level's values come from."""
