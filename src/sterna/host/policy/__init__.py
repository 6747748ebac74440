"""What the owner allows: the policy, its hours, the load, and the terms of each home that follow."""
