"""Scaffolds: a tree of templates on one side, a directory of this machine on the other."""
