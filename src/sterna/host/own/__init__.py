"""What a host does for its owner without any home: index, sitemap, changes and search of the own site."""
