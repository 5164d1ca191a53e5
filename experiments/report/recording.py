"""The bundled recording on the page: what was heard and drafted, and the sound itself.

The sound goes into the page, and only if it is the one that the record was measured on.
"""

from base64 import b64encode
from html import escape
from pathlib import Path

from experiments.records.table import Records
from specjax.measure import provenance

FOLDER, ROW = "speech", "recording"
CAPTION = "What was drafted as it listened, a line a call of the target"
ABSENT = "The recording that was measured is not in this checkout."
TYPES = {".flac": "audio/flac", ".wav": "audio/wav"}


def heard(results: Records) -> str:
    """What was said and written, and an element that plays it; nothing without a
    record."""
    record = results.get(FOLDER, {}).get(ROW)
    if record is None:
        return ""
    it = record["measured"]
    same = "the same text" if it["same_text"] else "another text, by rounding,"
    text = (
        f"A synthesised voice, nobody's, says <q>{escape(it['spoken'])}</q>."
        f" {escape(it['target'])} writes <q>{escape(it['text'])}</q> in"
        f" {it['alone_calls']} calls, a letter each, and {same} in"
        f" {it['target_calls']} where {escape(it['draft'])} drafts {it['gamma']}"
        " letters before each."
    )
    return f"<p>{text}</p>\n{player(it['prompt'], record['provenance']['inputs'])}"


def player(name: str, inputs: dict[str, str]) -> str:
    """An element that holds the recording among the inputs of a record."""
    for path, digest in inputs.items():
        file = provenance.HOME / path
        same = Path(path).name == name and file.is_file()
        if same and provenance.digest(file) == digest:
            sound = b64encode(file.read_bytes()).decode()
            kind = TYPES[file.suffix]
            return (
                f'<audio controls aria-label="{escape(name)}"'
                f' src="data:{kind};base64,{sound}"></audio>\n'
            )
    return f"<p>{ABSENT}</p>\n"
