"""Queries and changes of this machine."""
