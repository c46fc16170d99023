"""Drafts of bundles from roles, playbooks and repositories of Ansible."""
