"""config.yaml, read into typed values."""
