"""Modules and control repositories of Puppet as drafts of bundles."""
