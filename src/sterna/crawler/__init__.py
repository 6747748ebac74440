"""What travels: spec, SQL, conditions, the program, rules as text, facts and their codec."""
