"""hiera.yaml, versions 5 and older, and the files in its hierarchy."""
