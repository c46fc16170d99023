"""Ruby's and Psych's reading of values, where it affects Hiera's results."""
