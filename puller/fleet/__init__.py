"""The fleet: a store of the hosts' reports, its commands and its pages."""
