"""Scrapy, tuned: no robots, no delay, its own seen-set; it keeps every page whole.

Call: START OUTPUT CONNECTIONS.
"""

import sys

import scrapy
from scrapy.crawler import CrawlerProcess

START, OUTPUT, CONNECTIONS = sys.argv[1], sys.argv[2], int(sys.argv[3])
ORIGIN = "/".join(START.split("/")[:3]) + "/"
LINKS = "a:not([rel~=nofollow])::attr(href), area::attr(href), frame::attr(src)"  # as Sterna follows them


class Site(scrapy.Spider):
    name = "site"
    start_urls = (START,)

    def __init__(self):
        super().__init__()
        self.seen = {START}

    def parse(self, response):
        if not isinstance(response, scrapy.http.HtmlResponse):
            return
        for href in response.css(LINKS).getall():
            url = response.urljoin(href.strip()).partition("#")[0]
            if url.startswith(ORIGIN) and url not in self.seen:
                self.seen.add(url)
                yield scrapy.Request(url, dont_filter=True)
        yield {"url": response.url, "html": response.text}


process = CrawlerProcess(
    settings={
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS": CONNECTIONS,
        "CONCURRENT_REQUESTS_PER_DOMAIN": CONNECTIONS,
        "AUTOTHROTTLE_ENABLED": False,
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "FEEDS": {OUTPUT: {"format": "jsonlines"}},
    }
)
process.crawl(Site)
process.start()
