"""A bundle applied for real, twice, in a private root that goes when it is done."""
