"""Leftovers of bundles and changes of trials, which are recorded, and reverted when they are not needed."""
