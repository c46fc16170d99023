"""The store of all host data, in a database."""
