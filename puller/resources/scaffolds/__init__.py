"""The scaffold type: directories rendered from a tree of templates."""
