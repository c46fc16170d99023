"""Resource types of another distribution: packet filters of nftables, roles and databases of PostgreSQL."""
