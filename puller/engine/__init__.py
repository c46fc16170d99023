"""A manifest, or one resource, applied: look, differences, change, look again."""
