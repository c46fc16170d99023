"""Commands of the publisher of a site."""
