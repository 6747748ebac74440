"""Names of languages in English, by their codes."""

import re

_NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech",
    "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto",
    "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French",
    "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ka": "Georgian", "kk": "Kazakh", "ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian",
    "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian", "nl": "Dutch", "nn": "Norwegian",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip
_TAG = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{2,8}){0,3}", re.IGNORECASE)


def tag_of(language: str) -> str:
    """The language as an attribute takes it; empty if it is no language tag."""
    return language if _TAG.fullmatch(language) else ""


def name_of(language: str) -> str:
    """The language in English; its tag where it has no name here, empty if it has none either."""
    tag = tag_of(language)
    return _NAMES.get(tag.partition("-")[0].lower(), tag)
