"""What the commands do, as functions: composed of all packages; prints nothing, reads no environment."""
