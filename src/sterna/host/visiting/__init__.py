"""Crawlers that are here: from an order to the parcels that its home has taken."""
