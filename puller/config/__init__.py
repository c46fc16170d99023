"""The configuration ``config.yaml`` as typed values."""
