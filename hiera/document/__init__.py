"""The single document: data, hierarchy and overrides in one file."""
