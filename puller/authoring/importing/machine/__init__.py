"""The configuration of a running machine as the draft of a bundle."""
