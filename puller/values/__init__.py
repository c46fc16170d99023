"""Small typed values: durations, modes, references and times, and messages for invalid values."""
