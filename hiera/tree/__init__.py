"""Hiera 5 trees: lookups in unchanged trees with the same results as in Puppet 7."""
