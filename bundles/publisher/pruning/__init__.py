"""Versions that a site need not keep any more, and files that no host can ask for."""
