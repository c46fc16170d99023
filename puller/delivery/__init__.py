"""Delivery of reports to the destinations where the fleet is watched."""
