"""The checks of lint, one module for each idea. ``findings.py`` says how to add a rule."""
