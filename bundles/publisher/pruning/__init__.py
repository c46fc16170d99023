"""Removal of outdated versions and unreferenced files from a site."""
