"""Archives from the world: fetched, read strictly, and put into a directory."""
