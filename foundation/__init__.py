"""Utilities that `hiera`, `bundles` and `puller` share. This package imports none of them."""

from foundation import formatting as formatting  # the text of problems
