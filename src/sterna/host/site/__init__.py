"""The pages of the site, over HTTP or from the disk, and the paths that are closed."""
