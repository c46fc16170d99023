"""Edits: resource types that manage a part of a file, and leave the rest of it as it is."""
