"""Documents on the wire as pure values: index, release, description, identity, paths, TUF metadata read strictly."""
