"""Hiera 5 trees: every key answered as Puppet 7 answers it, from unchanged trees."""
