"""Commands of whoever looks after all hosts."""
