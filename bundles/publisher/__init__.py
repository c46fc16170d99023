"""The publisher's side of a site: roles, keys, signing, releases."""
