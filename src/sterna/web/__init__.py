"""Reading the web: URLs, names, HTTP, robots.txt, politeness, HTML, sitemaps."""
