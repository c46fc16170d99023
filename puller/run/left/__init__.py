"""Things that bundles leave behind: made by Puller and declared by nobody, or changed by a bundle on trial."""
