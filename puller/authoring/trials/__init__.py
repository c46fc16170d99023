"""Real application of a bundle, twice, in a temporary private root."""
