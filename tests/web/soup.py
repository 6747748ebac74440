"""Pieces of pages, of which tests make soups that no parser expects."""

PIECES = [
    '<a href="x">', "<a href='y'>", "<a href=z rel=nofollow>", '<a name="n">', "</a>", "<A HREF=u>",
    "</A>", '<a href="q?a&amp;b=1&copy=2&lt" class=c>', '<a href="d" href="e">', "<a\nhref=l>",
    "<a/href=m>", "<a", "<p>", "</p>", "<div>", "</div>", "<b>", "</b>", "<span title='<a href=v>'>",
    '<i t="1>2">', "<h1>", "</h1>", "<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>", "<tbody>",
    "<caption>", "</caption>", "<col>", "<ul>", "<li>", "</ul>", "<form>", "</form>", "<button>",
    "</button>", "<br/>", "</br>", "<hr>", "<input>", "<select>", "<option>", "</select>", "<textarea>",
    "</textarea>", "<script>", "</script>", "<style>", "</style>", "<title>", "</title>", "<noscript>",
    "</noscript>", "<svg>", "<path/>", "</svg>", "<math>", "<template>", "</template>", '<iframe src="f">',
    "</iframe>", "<html lang=de>", "<head>", "</head>", "<body>", "</body>", "</html>", '<base href="b/">',
    "<meta name=robots content=noindex>", "<link rel=next href=n>", "<area href=r>",
    '<img srcset="s 1x,t 2x">', "<img src=i>", '<script src="j">', "<SCRIPT SRC=k>", "<video src=o poster=v>",
    "<track src=w>", "<source src=w>", "<link rel=icon href=i>", "<link rel=stylesheet href='m'>",
    "<frameset>", "<frame src=g>", "<xmp>", "<image>",
    "<!-- -->", "<!--", "-->", "--!>", "<!-->", "<!doctype html>", "<?pi>", "<![CDATA[", "]]>", "<", ">",
    "&", '"', "'", "=", "<3", "</3", ' x=y" t="', "&amp;", "&#65;", "&#0;", "text", " ", "\n", "\r",
    "\x00", "\x0b",
]  # fmt: skip
