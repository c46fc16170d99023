"""The `{{ }}` language of manifests and data."""
