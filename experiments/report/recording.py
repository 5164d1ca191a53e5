"""The bundled recording on the page: the transcript, the drafts, and the sound itself.

The sound is part of the page, but only if it is the one that the record was measured
on.
"""

from base64 import b64encode

from experiments.records.table import Records
from specjax.measure import provenance

FOLDER, ROW = "speech", "recording"
ABSENT = "The recording that was measured is not in this checkout."
TYPES = {".flac": "audio/flac", ".wav": "audio/wav"}


def transcript(results: Records) -> dict | None:
    """Returns the numbers of the recording, and its sound as a data address (None if
    the sound is absent); None without a record.
    """
    record = results.get(FOLDER, {}).get(ROW)
    if record is None:
        return None
    it, sound = record["measured"], None
    for path, digest in record["provenance"]["inputs"].items():
        file = provenance.HOME / path
        same = file.name == it["prompt"] and file.is_file()
        if same and provenance.digest(file) == digest:
            held = b64encode(file.read_bytes()).decode()
            sound = f"data:{TYPES[file.suffix]};base64,{held}"
    return it | {"sound": sound}
