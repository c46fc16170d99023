"""Formats of settings: pure functions that find, change and remove one key in the text of a file."""
