"""Unpacked bundles of this machine, named by their SHA-256."""
