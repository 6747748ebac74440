"""Visits carried out at hosts: the trip of a crawler there and back."""
