"""Documents, brought from where they arrive into the store."""
