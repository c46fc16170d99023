"""Small typed values: durations, modes, references, times; the sentence for a value that does not fit."""
