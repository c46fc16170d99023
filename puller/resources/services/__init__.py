"""The service type and systemd."""
