"""Small typed values: durations, modes, references, times."""
