"""Copies of a site by other operators than its publisher."""
