"""Both sides of the wire: format, signing, publishing, fetching, unpacking."""
