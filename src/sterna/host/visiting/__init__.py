"""Visits at the host: from an order to the parcels that its home has acknowledged."""
