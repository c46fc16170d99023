"""Go's times, durations and layouts."""
