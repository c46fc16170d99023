"""Ruby's and Psych's reading of values, where Hiera's answers depend on it."""
