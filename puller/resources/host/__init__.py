"""Identity of the machine: its host name, names of other hosts, and its time zone."""
