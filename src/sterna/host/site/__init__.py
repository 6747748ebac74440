"""The pages of the site, over HTTP or from the disk, and those that stay closed."""
