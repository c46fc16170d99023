"""The file type."""
