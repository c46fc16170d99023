"""Utilities for `hiera`, `bundles` and `puller`. This package does not import them."""

from foundation import formatting as formatting  # the text of problems
