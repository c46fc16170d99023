"""Publication of a site: roles, keys, signatures, releases."""
