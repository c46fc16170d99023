"""Tokens, nodes and the parser of Go templates."""
