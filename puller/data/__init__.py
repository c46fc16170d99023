"""Sources of values: documents of this host, site data, and data of the bundle."""
