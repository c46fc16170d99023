"""Hiera data: values from hierarchies, documents and facts, with an explanation."""
