"""Where values come from: sources, site data, the bundle's data."""
