"""EUC-JP and ISO-2022-JP as the Encoding standard decodes them: with the rows that NEC and IBM added.

Python's codecs know JIS X 0208 alone, and read some of its signs otherwise than every browser does. The
standard's one index for these encodings is that of Shift_JIS as Windows has it, which Python calls cp932.
"""

import codecs

_CODECS = {"euc-jp": "euc_jp", "iso-2022-jp": "iso2022_jp_ext"}
_AS_WINDOWS = str.maketrans("〜−‖—¢£¬", "～－∥―￠￡￢")
_ERRORS = "sterna-japanese"


def decode_japanese(name: str, body: bytes) -> str:
    """The text in the encoding of this name, bad bytes as U+FFFD."""
    return codecs.decode(body, _CODECS[name], _ERRORS).translate(_AS_WINDOWS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    pair = error.object[error.start : error.start + 2]
    row, cell = ((byte & 0x7F) - 0x21 for byte in pair) if len(pair) == 2 else (-1, -1)
    is_pair = 0 <= row < 94 and 0 <= cell < 94 and (pair[0] ^ pair[1]) < 0x80
    if not is_pair:
        return "\ufffd", error.start + 1
    lead, trail = divmod(row * 94 + cell, 188)
    shifted = bytes((lead + (0x81 if lead < 31 else 0xC1), trail + (0x40 if trail < 63 else 0x41)))
    return shifted.decode("cp932", "replace")[:1], error.start + 2


codecs.register_error(_ERRORS, _replace)
