"""The languages that Whisper knows, by what people call them.

The codes are in `tiktoken.LANGUAGES`; a name here is of the code at the same place.
"""

from collections.abc import Iterable

from specjax.speech.tiktoken import LANGUAGES

NAMES = (
    "english, chinese, german, spanish, russian, korean, french, japanese, portuguese,"
    " turkish, polish, catalan, dutch, arabic, swedish, italian, indonesian, hindi,"
    " finnish, vietnamese, hebrew, ukrainian, greek, malay, czech, romanian, danish,"
    " hungarian, tamil, norwegian, thai, urdu, croatian, bulgarian, lithuanian, latin,"
    " maori, malayalam, welsh, slovak, telugu, persian, latvian, bengali, serbian,"
    " azerbaijani, slovenian, kannada, estonian, macedonian, breton, basque, icelandic,"
    " armenian, nepali, mongolian, bosnian, kazakh, albanian, swahili, galician,"
    " marathi, punjabi, sinhala, khmer, shona, yoruba, somali, afrikaans, occitan,"
    " georgian, belarusian, tajik, sindhi, gujarati, amharic, yiddish, lao, uzbek,"
    " faroese, haitian creole, pashto, turkmen, nynorsk, maltese, sanskrit,"
    " luxembourgish, myanmar, tibetan, tagalog, malagasy, assamese, tatar, hawaiian,"
    " lingala, hausa, bashkir, javanese, sundanese, cantonese"
).split(", ")
CODES = dict(zip(NAMES, LANGUAGES, strict=True)) | {
    "burmese": "my",
    "castilian": "es",
    "flemish": "nl",
    "haitian": "ht",
    "letzeburgesch": "lb",
    "mandarin": "zh",
    "moldavian": "ro",
    "moldovan": "ro",
    "panjabi": "pa",
    "pushto": "ps",
    "sinhalese": "si",
    "valencian": "ca",
}


def code(asked: str, known: Iterable[str]) -> str:
    """The code of a language by what it is called: "de", "German" or its token.

    known: codes of the model. Raises ValueError for a language that is not among them.
    """
    codes = {each.lower(): each for each in known}
    plain = str(asked).strip().lower().removeprefix("<|").removesuffix("|>")
    plain = plain if plain in codes else CODES.get(plain, plain)
    if plain not in codes:
        listed = ", ".join(codes.values())
        raise ValueError(f"no language {asked!r}: choose one of {listed}")
    return codes[plain]
