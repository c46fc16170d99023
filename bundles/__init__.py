"""Both sides of the transfer of bundles: formats, signatures, publication, download, unpacking."""
