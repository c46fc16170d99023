"""Users and groups of this machine, and the keys that users log in with."""
