"""Declared resources of a host as a graph: joined, identified, without contradictions, and in order."""
