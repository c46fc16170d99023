"""Groups of facts, one file a group."""
