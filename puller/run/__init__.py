"""One run, from the lock to the report."""
