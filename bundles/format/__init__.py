"""Signed documents as values: index, release, description, identity, paths, and strict checks of TUF metadata."""
