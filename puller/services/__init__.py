"""What starts and stops services."""
