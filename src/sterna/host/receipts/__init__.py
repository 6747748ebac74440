"""What visits cost and spare the site: receipts, their sums, and the access log of its web server."""
