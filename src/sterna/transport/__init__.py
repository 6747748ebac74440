"""Transports: how calls reach a host."""
