"""Facts about this machine, as a lazy tree of plain values."""
