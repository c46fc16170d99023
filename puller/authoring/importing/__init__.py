"""Drafts of bundles from roles of Ansible, from cloud-config, and from a running machine."""
