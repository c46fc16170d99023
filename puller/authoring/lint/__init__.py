"""Lint: the mistakes of a bundle, found where it is written."""
