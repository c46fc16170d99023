"""The archive type: fetched, verified, extracted."""
