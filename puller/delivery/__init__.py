"""Reports, sent to where the fleet is looked at."""
