"""Which crawlers a home may send, whatever its budget: certain programs, or all of certain authors.

Fiedler-Hammer 6.2: an owner grants execution to crawlers by their signatures. Terms are loaded with every
greeting, and this only with the first order: it needs the encoding of crawlers.
"""

from sterna.crawler.pack import SIGNED_AS, program_digest, signed_part
from sterna.errors import WireError
from sterna.host.policy.terms import Terms
from sterna.model import Crawler
from sterna.wire.keys import PublicKey


def why_not_permitted(crawler: Crawler, terms: Terms) -> str:
    """Empty if the owner permits this program, or every crawler of its author, and the signature is valid."""
    if not terms.crawlers:
        return ""
    if crawler.keeps_raw:  # neither signed nor part of the program, and more than it would bring
        return (
            f"the site's owner permits crawler {crawler.name!r} for what it keeps, not whole responses:"
            " leave out --warc"
        )
    if (digest := program_digest(crawler)) in terms.crawlers:
        return ""
    if crawler.author not in terms.crawlers:
        who = f"signed by {crawler.author[:80]}" if crawler.author else "not signed"
        return f"the site's owner does not permit crawler {crawler.name!r} (program {digest}, {who})"
    try:
        PublicKey.parse(crawler.author).verify(SIGNED_AS, signed_part(crawler), crawler.signature)
    except WireError as error:
        return f"the signature of crawler {crawler.name!r} is invalid: {error.detail}"
    return ""
