// spider-rs: the whole site, links only; scrape(), which keeps the pages, loses most of them under load.
import { Website } from '@spider-rs/spider-rs'

const website = new Website(process.argv[2]).withRespectRobotsTxt(false).withDelay(0).build()
await website.crawl()
console.log(website.getLinks().length)
