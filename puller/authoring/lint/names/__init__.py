"""Names in expressions and templates, followed through the shapes of what hosts can have."""
