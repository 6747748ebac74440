"""Who comes in: the offer by which homes find a host, who is admitted, sessions, the bodies of calls."""
