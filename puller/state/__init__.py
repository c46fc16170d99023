"""Files that Puller itself keeps below the state directory."""
