"""The state of one lookup: scope, interpolation, keys, explanation."""
