"""Health checks: what can be asked of a machine and its services, one module for each kind."""
