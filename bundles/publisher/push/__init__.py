"""Push of a site to the place that serves it to hosts."""
