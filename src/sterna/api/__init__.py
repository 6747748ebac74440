"""What the commands do, as functions over all packages; nothing here prints or reads the environment."""
