"""Files of Puller below the state directory."""
