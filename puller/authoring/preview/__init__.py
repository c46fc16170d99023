"""Previews: the changes that a release makes, and on which machines."""
