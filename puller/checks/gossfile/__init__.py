"""Gossfiles: parsing, matching, and queries of this machine."""
