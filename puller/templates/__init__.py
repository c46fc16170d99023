"""Template engines: Jinja2, Jet and Go, and the rendering of whole trees."""
