"""The client of a site on a host: TUF workflow, revalidation, resumed downloads."""
