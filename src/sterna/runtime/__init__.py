"""What runs a crawler: the visit's loop, its frontier, the processes that read pages."""
