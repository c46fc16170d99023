"""Names in expressions and templates, checked against the shapes of host values."""
