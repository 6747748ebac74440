"""Discovery: the document that announces a site's host, its endpoint and its key."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from sterna.errors import WireError
from sterna.model import Record
from sterna.web.urls import Canonical
from sterna.wire.handshake import SUITE, VERSION, Platform, Site, Words
from sterna.wire.keys import MAX_SUCCESSIONS, PublicKey, Succession
from sterna.wire.problems import decode_json, malformed

WELL_KNOWN = "/.well-known/sterna"
OFFER_TYPE = "application/json"
MEDIA_TYPE = "application/vnd.sterna"  # of every other message
MAX_OFFER_BYTES = 64 * 1024
DEFAULT_MAX_AGE = 24 * 3600
MAX_MAX_AGE = 30 * 24 * 3600

_MAX_ROBOTS_BYTES = 500 * 1024  # as much as of any robots.txt is read (RFC 9309 2.5)
_ANNOUNCEMENT = re.compile(rb"^[ \t]*sterna[ \t]*:[ \t]*([!-~]{1,2048})[ \t]*(?:#.*)?$", re.IGNORECASE)
_canonical = Canonical(())

Text = Annotated[str, Meta(max_length=2048)]
Policy = Annotated[dict[Text, Text | int | float | bool | tuple[Text, ...] | None], Meta(max_length=100)]


class Offer(Record, frozen=True, array_like=False, kw_only=True):
    """What a host publishes about itself."""

    version: int = VERSION
    site: Site
    key: Text  # as PublicKey writes it
    endpoint: Text  # absolute; the messages go to addresses below it
    suites: Words = (SUITE,)
    sources: Words = ("http",)
    formats: Words = ("zstd",)
    platform: Platform = msgspec.field(default_factory=dict)
    policy: Policy = msgspec.field(default_factory=dict)  # its public part
    is_live_only: bool = False  # the host keeps nothing: no resume (a CGI host)
    succession: Annotated[tuple[Text, ...], Meta(max_length=MAX_SUCCESSIONS)] = ()
    max_age: Annotated[int, Meta(ge=0, le=MAX_MAX_AGE)] = DEFAULT_MAX_AGE  # seconds it may be cached
    lists_pages: bool = False  # below the endpoint, by its own index (`wire.listing`)

    @property
    def public_key(self) -> PublicKey:
        return PublicKey.parse(self.key)

    @property
    def chain(self) -> tuple[Succession, ...]:
        """The successions from earlier keys; not verified yet."""
        return tuple(map(Succession.parse, self.succession))


class _Version(Record, frozen=True, array_like=False):
    version: int


def encode_offer(offer: Offer) -> bytes:
    return msgspec.json.format(msgspec.json.encode(offer), indent=2) + b"\n"


def decode_offer(data: bytes, site: str) -> Offer:
    """The offer of this site's host; WireError if it is malformed, too new, or of another site."""
    if len(data) > MAX_OFFER_BYTES:
        raise WireError("too-large", f"a discovery document has at most {MAX_OFFER_BYTES} bytes")
    with malformed("the discovery document"):
        version = decode_json(data, _Version).version
        # Before anything else is read: a later version may have other fields.
        if version != VERSION:
            raise WireError("version", f"the host speaks version {version}, this home {VERSION}")
        offer = decode_json(data, Offer)
    if offer.site != site:
        raise WireError("wrong-audience", f"the discovery document of {site} is for another site")
    if SUITE not in offer.suites:
        raise WireError("version", f"the host of {site} offers no supported suite")
    _ = offer.public_key, offer.chain  # they raise
    endpoint = _canonical(offer.endpoint)
    if endpoint is None or "?" in endpoint:
        raise WireError("malformed", "the endpoint is not an http or https URL without a query")
    return msgspec.structs.replace(offer, endpoint=endpoint.rstrip("/"))


def announced(robots_txt: bytes) -> str | None:
    """The URL in the first line `Sterna: URL` of a robots.txt, canonical; None if there is none."""
    for line in robots_txt[:_MAX_ROBOTS_BYTES].splitlines():
        if match := _ANNOUNCEMENT.match(line.removeprefix(b"\xef\xbb\xbf")):
            return _canonical(match[1].decode("ascii"))
    return None
