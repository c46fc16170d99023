"""A site, brought to where hosts read it."""
