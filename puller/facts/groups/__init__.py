"""Groups of built-in facts."""
