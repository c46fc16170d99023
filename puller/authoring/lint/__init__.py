"""Lint: the mistakes of a bundle, found where it is written. ``findings.py`` says how to add a rule."""
