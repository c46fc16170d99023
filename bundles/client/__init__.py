"""The host's side of a site: TUF workflow, revalidation, resumed downloads."""
