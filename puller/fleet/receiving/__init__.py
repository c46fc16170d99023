"""Reports of hosts, received and put into a directory."""
