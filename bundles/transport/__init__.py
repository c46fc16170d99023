"""Bytes from a mirror, bounded in size and time."""
