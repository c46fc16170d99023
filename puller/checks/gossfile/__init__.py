"""The files of goss: read, matched, and asked of this machine."""
