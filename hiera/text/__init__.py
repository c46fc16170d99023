"""YAML and JSON, read strictly."""
