"""The site's side: admission, sessions, visits, the pages of the site, and the faces of the service."""
