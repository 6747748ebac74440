"""Scrapy, tuned: no robots, no delay, high concurrency, its own seen-set; title, text and links kept."""

import sys

import scrapy
from scrapy.crawler import CrawlerProcess

START = sys.argv[1]
ORIGIN = "/".join(START.split("/")[:3]) + "/"


class Site(scrapy.Spider):
    name = "site"
    start_urls = (START,)

    def __init__(self):
        super().__init__()
        self.seen = {START}

    def parse(self, response):
        if not isinstance(response, scrapy.http.HtmlResponse):
            return
        title = response.css("title::text").get()
        text = " ".join(" ".join(response.css("body ::text").getall()).split())
        links = []
        for href in response.css(
            "a::attr(href), area::attr(href), frame::attr(src), iframe::attr(src)"
        ).getall():
            url = response.urljoin(href.strip()).partition("#")[0]
            links.append(url)
            if url.startswith(ORIGIN) and url not in self.seen:
                self.seen.add(url)
                yield scrapy.Request(url, dont_filter=True)
        yield {"url": response.url, "title": title, "text": text, "links": links}


process = CrawlerProcess(
    settings={
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS": 64,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
        "AUTOTHROTTLE_ENABLED": False,
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "FEEDS": {sys.argv[2]: {"format": "jsonlines"}},
    }
)
process.crawl(Site)
process.start()
