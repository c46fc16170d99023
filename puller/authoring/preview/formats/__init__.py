"""Previews as text for people, as markdown for merge requests, and as JSON for programs."""
