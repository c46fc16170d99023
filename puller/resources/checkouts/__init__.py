"""Working trees of git: desired revisions, current state, and calls of git."""
