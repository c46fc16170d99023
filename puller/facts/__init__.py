"""Facts: what is known about this machine, as one lazy tree of plain values."""
