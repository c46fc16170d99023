"""Resource types that edit a part of a file and keep the rest."""
