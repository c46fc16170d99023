"""Lint: checks of a bundle's sources for mistakes. ``findings.py`` describes how to add a rule."""
