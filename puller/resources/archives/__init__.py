"""The archive type: download, verification and extraction."""
