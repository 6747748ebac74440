// spider-rs: the whole site, every page's content kept until it is counted.
import { Website } from '@spider-rs/spider-rs'

const website = new Website(process.argv[2]).withRespectRobotsTxt(false).withDelay(0).build()
await website.scrape()
console.log(website.getPages().length)
