"""What stays: Parquet segments of pages, links and facts, and WARC files."""
