"""Data: hierarchy, documents and facts give values, with an explanation."""
