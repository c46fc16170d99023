"""Drafts of bundles from Ansible, Puppet, cloud-config, and a running machine."""
