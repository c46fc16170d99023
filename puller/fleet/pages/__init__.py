"""Static pages of the fleet, for any web server."""
