"""The report of a run: its log lines, metrics, problems and exit status."""
