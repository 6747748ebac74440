"""What travels: the crawler's scope; later its spec, rules and facts."""
