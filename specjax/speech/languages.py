"""The languages that Whisper knows, by their codes and their names."""

from collections.abc import Iterable

# In the order of their ids; the last came with large-v3.
PAIRS = (
    "en english, zh chinese, de german, es spanish, ru russian, ko korean, fr"
    " french, ja japanese, pt portuguese, tr turkish, pl polish, ca catalan, nl"
    " dutch, ar arabic, sv swedish, it italian, id indonesian, hi hindi, fi finnish,"
    " vi vietnamese, he hebrew, uk ukrainian, el greek, ms malay, cs czech, ro"
    " romanian, da danish, hu hungarian, ta tamil, no norwegian, th thai, ur urdu,"
    " hr croatian, bg bulgarian, lt lithuanian, la latin, mi maori, ml malayalam, cy"
    " welsh, sk slovak, te telugu, fa persian, lv latvian, bn bengali, sr serbian,"
    " az azerbaijani, sl slovenian, kn kannada, et estonian, mk macedonian, br"
    " breton, eu basque, is icelandic, hy armenian, ne nepali, mn mongolian, bs"
    " bosnian, kk kazakh, sq albanian, sw swahili, gl galician, mr marathi, pa"
    " punjabi, si sinhala, km khmer, sn shona, yo yoruba, so somali, af afrikaans,"
    " oc occitan, ka georgian, be belarusian, tg tajik, sd sindhi, gu gujarati, am"
    " amharic, yi yiddish, lo lao, uz uzbek, fo faroese, ht haitian creole, ps"
    " pashto, tk turkmen, nn nynorsk, mt maltese, sa sanskrit, lb luxembourgish, my"
    " myanmar, bo tibetan, tl tagalog, mg malagasy, as assamese, tt tatar, haw"
    " hawaiian, ln lingala, ha hausa, ba bashkir, jw javanese, su sundanese, yue"
    " cantonese"
)
LANGUAGES, NAMES = zip(*(pair.split(" ", 1) for pair in PAIRS.split(", ")), strict=True)
OTHERS = "burmese my, castilian es, flemish nl, haitian ht, letzeburgesch lb, mandarin"
OTHERS += " zh, moldavian ro, moldovan ro, panjabi pa, pushto ps, sinhalese si"
CODES = dict(zip(NAMES, LANGUAGES, strict=True))
CODES |= dict(pair.split() for pair in f"{OTHERS}, valencian ca".split(", "))


def code(name: str, known: Iterable[str]) -> str:
    """Returns the code of a language from a code, a name or a token: "de" or "German".

    known: the codes of the model. Raises ValueError for a language that is not among
    them."""
    codes = {each.lower(): each for each in known}
    plain = str(name).strip().lower().removeprefix("<|").removesuffix("|>")
    plain = plain if plain in codes else CODES.get(plain, plain)
    if plain not in codes:
        listed = ", ".join(codes.values())
        raise ValueError(f"no language {name!r}: choose one of {listed}")
    return codes[plain]
