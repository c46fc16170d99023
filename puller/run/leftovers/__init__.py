"""Leftovers of bundles, and the changes of bundles on trial: recorded, and taken back when nobody declares them."""
