"""A site, copied by somebody who is not its publisher."""
