"""Repair: examines every part of a collection, mends what can be mended and sets the rest aside."""
