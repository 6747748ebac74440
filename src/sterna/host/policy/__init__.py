"""What the owner allows: his policy, its hours, the load, the ration of a day, and what follows of them."""
