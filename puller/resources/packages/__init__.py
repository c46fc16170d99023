"""The package type and its package managers."""
