"""Commands of the operator of a host."""
