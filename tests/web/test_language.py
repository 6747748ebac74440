"""Languages of texts that do not say theirs."""

import time

import pytest

from sterna.web.document import Fetched, Manner, read_document
from sterna.web.language import guess_language

TEXTS = {
    "en": "The arctic tern has the longest migration of all birds. It flies from its breeding grounds "
    "in the north to the ice of the south and back again each year, so that it sees more daylight"
    " than any other.",
    "de": "Die Küstenseeschwalbe hat den längsten Zugweg aller Vögel. Sie fliegt jedes Jahr von ihren "
    "Brutplätzen im Norden bis an das Eis des Südens und wieder zurück, und so sieht sie mehr "
    "Tageslicht als alle anderen.",
    "fr": "La sterne arctique est l'oiseau qui fait la plus longue migration. Elle vole chaque année du"
    " nord, où elle niche, jusqu'aux glaces du sud et revient, de sorte qu'elle voit plus de jour"
    " que tous les autres.",
    "es": "El charrán ártico es el ave que hace la migración más larga. Cada año vuela desde el norte, "
    "donde cría, hasta los hielos del sur y vuelve, de modo que ve más luz del día que todas las "
    "otras aves del mundo.",
    "ru": "Полярная крачка совершает самые длинные перелёты из всех птиц. Каждый год она летит с "
    "севера, где гнездится, на юг, к самым льдам, и обратно, и потому видит больше света, чем все"
    " другие птицы.",
    "ja": "キョクアジサシは全ての鳥の中で最も長い渡りをする鳥である。毎年、北の繁殖地から南の氷の海"
    "まで飛び、また戻ってくる。",
    "zh": "北极燕鸥是所有鸟类中迁徙距离最远的鸟。它每年从北方的繁殖地飞到南方的冰海，然后再飞回来，"
    "因此它看到的日光最多。",
    "ko": "북극제비갈매기는 모든 새 가운데 가장 먼 거리를 이동하는 새이다. 해마다 북쪽의"
    " 번식지에서 남쪽의 얼음까지 날아갔다가 돌아온다.",
    "el": "Το αρκτικό γλαρόνι κάνει τη μεγαλύτερη μετανάστευση από όλα τα πουλιά και πετά κάθε χρόνο "
    "από τον βορρά.",
    "": "Tern Gull Skua Auk Petrel Fulmar Shearwater Gannet Cormorant Heron Stork Ibis Spoonbill "
    "Flamingo Duck Goose Swan Eagle Kite Hawk Falcon Crane Rail Plover Snipe Curlew",
}  # fmt: skip


@pytest.mark.parametrize("language", TEXTS)
def test_language_is_guessed_of_a_few_sentences(language: str) -> None:
    assert guess_language(TEXTS[language]) == language


def test_short_and_mixed_texts_have_none() -> None:
    assert guess_language("") == guess_language("the tern is a bird") == ""
    assert guess_language(" ".join(TEXTS[each] for each in ("en", "de", "fr", "es")) * 2) == ""


def test_near_languages_are_not_taken_for_those_that_are_known() -> None:
    bulgarian = (
        "Полярната рибарка е птицата с най-дългата миграция от всички. Всяка година тя лети от местата си за"
        " гнездене на север до ледовете на юг и обратно и така вижда повече светлина от всички други птици."
    )
    assert guess_language(bulgarian) == ""


def test_guess_takes_little_time_of_any_text() -> None:
    for text in (TEXTS["en"] * 20_000, "é" * 10**6, "\u3040" * 10**6, "а" * 10**6, " " * 10**6):
        began = time.process_time()
        guess_language(text)
        assert time.process_time() - began < 0.02


def read(html: str, *, header: str = "", kind: str = "text/html; charset=utf-8") -> str:
    manner = Manner(wants=("text", "language")).encoded()
    fetched = Fetched(
        url="https://a.example/", status=200, content_type=kind, body=html.encode(), manner=manner,
        content_language=header,
    )  # fmt: skip
    return read_document(fetched).language


def test_page_is_believed_before_anything_is_guessed() -> None:
    german = f"<p>{TEXTS['de']}"
    assert read(german) == "de"
    assert read(f"<html lang=en>{german}") == "en"
    assert read(german, header="fr") == "fr"
    assert read(TEXTS["fr"], kind="text/plain; charset=utf-8") == "fr"
    assert read(f"<meta name=robots content=noindex>{german}") == ""
