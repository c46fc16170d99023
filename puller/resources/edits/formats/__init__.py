"""The formats of settings: one key found, changed and removed in the text of a file, as pure functions."""
