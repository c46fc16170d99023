"""The checks of lint, one module for each idea."""
