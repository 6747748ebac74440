"""The site's side: a service that takes in crawlers, as an ASGI application or a CGI program; its state."""
