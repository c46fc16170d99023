"""Health checks of a machine and its services, one module per kind."""
