"""What a host does for its owner with no partner: index, sitemap, changes and search of the own site."""
