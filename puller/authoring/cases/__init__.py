"""Cases of a bundle: each is a machine, and what is expected of it there."""
