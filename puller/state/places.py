"""Paths that are the same on every machine; apart, because commands that read them import little else."""

DEFAULT_CONFIGURATION = "/etc/puller/config.yaml"
PRIVATE_KEY = "/etc/puller/keys/private_key.pkcs7.pem"
"""Where a host's key for encrypted values is, unless something else is said."""
