"""The kernel: parameters, modules and mounts."""
