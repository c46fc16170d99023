"""Commands of the operator of a fleet."""
