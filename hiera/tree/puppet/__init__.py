"""Puppet's data types, conversions and formats."""
