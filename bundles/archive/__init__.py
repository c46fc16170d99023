"""The one legal tar.gz of a bundle: packed, read and unpacked."""
