"""What strangers could write into titles, texts and addresses to make a page do something."""

from tests.search.page.fakes import hit_of

from sterna.search.results import Hit, Piece

ELSEWHERE = "http://192.0.2.1"  # nobody's (RFC 5737)
TEXTS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "</title></h2></a><script>alert(1)</script>",
    "<svg/onload=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}/'>",
    f"<base href='{ELSEWHERE}/'><link rel=stylesheet href=x.css>",
    f"<style>@import url({ELSEWHERE}/x.css)</style>",
    f"<iframe src={ELSEWHERE}></iframe><form action={ELSEWHERE}><button autofocus>",
    "<details open ontoggle=alert(1)>",
    "<!-- --!> ]]> <![CDATA[ <plaintext>",
    "\u202egnorw era sgniht \u2066\u2067\u200f",
    "\u200b\u2060\ufeff" * 3000 + "hidden",
    "A" * 10_000,
    "half \ud800 a \udfff letter",
    "stacked " + "e" + "\u0301\u0336\u0489" * 400,
    "a\x00b\x1bc\x7fd\u2028e\u0085f",
    "\u200d" * 500 + "joined",
    "𝕱𝖆𝖓𝖈𝖞 👩‍👩‍👧‍👦 \U000e0041 \U0010ffff",
    "",
)
NO_LINKS = (
    "javascript:alert(1)",
    " javascript:alert(1)",
    "JaVaScRiPt:alert(1)//http://site.test/",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "//evil.test/",
    "http:",
    "https://",
    "/relative",
    "file:///etc/passwd",
    "\u0001javascript:alert(1)",
)
LINKS = (
    'http://site.test/"onmouseover="alert(1)',
    "http://site.test/'><script>alert(1)</script>",
    "http://site.test/\u202egpj.exe",
    "http://site.test/%E2%80%AEgpj.exe",
    "http://site.test/M%C3%BCnchen",
    "http://site.test/" + "x" * 5000,
    "http://user:secret@site.test/",
    "http://site.test/\ud800",
    "https://[::1]:8080/?a=1&b=2&lt;3",
    "http://" + "long." * 300 + "test/",
)


def hostile_hits() -> list[Hit]:
    """A hit for each of them."""
    hits = [
        hit_of(
            f"http://site.test/{number}",
            f"word {text}",
            language=text,
            site=text,
            snippet=(Piece(f"word {text}"), Piece(text, is_marked=True)),
            title_pieces=(Piece("word "), Piece(text, is_marked=True), Piece(text)),
            folded=NO_LINKS,
        )
        for number, text in enumerate(TEXTS)
    ]
    return [*hits, *(hit_of(url, f"link {n}", "word") for n, url in enumerate((*NO_LINKS, *LINKS)))]
