"""What home knows of every site and URL: protocols by concern, and their stores."""
