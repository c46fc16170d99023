"""Commands of the author of bundles."""
