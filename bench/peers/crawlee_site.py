"""Crawlee for Python: its Parsel crawler, high concurrency, title, text and links of every page."""

import asyncio
import sys

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext

START = sys.argv[1]


async def main():
    crawler = ParselCrawler(
        concurrency_settings=ConcurrencySettings(
            desired_concurrency=64, max_concurrency=64, min_concurrency=64
        ),
        max_request_retries=0,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        select = context.selector
        await context.push_data(
            {
                "url": context.request.url,
                "title": select.css("title::text").get(),
                "text": " ".join(" ".join(select.css("body ::text").getall()).split()),
                "links": select.css("a::attr(href)").getall(),
            }
        )
        await context.enqueue_links(strategy="same-origin")

    await crawler.run([START])


asyncio.run(main())
