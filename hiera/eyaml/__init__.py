"""Encrypted values, as hiera-eyaml writes them."""
