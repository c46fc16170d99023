"""The fleet: what hosts report, kept in a store, asked by commands and shown on pages."""
