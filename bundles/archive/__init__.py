"""The canonical tar.gz of a bundle: packing, reading and unpacking."""
