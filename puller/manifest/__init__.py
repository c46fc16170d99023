"""From a manifest's text to declared resources in order, with all problems at once."""
