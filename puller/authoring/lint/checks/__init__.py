"""The checks of lint, one module for each idea. ``findings.py`` describes how to add a rule."""
