"""The store: what is known of each host, in a database."""
