"""This machine, read and changed."""
