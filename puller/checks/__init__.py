"""Health checks of a machine and its services, one module for each group of kinds."""
