"""Recipients of encrypted files: people, hosts, and rules for files under version control."""
