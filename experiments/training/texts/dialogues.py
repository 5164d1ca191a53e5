"""Dialogues and their summaries, of a folder that the user has: DialogSum and SAMSum.

A text is a dialogue, then a summary of it, so that one model both goes on with a
conversation and sums it up. Chen et al. (2021), https://arxiv.org/abs/2105.06762;
Gliwa et al. (2019), https://arxiv.org/abs/1911.12237. The licences of both are
non-commercial: what learns from them is not bundled.
"""

from pathlib import Path

from experiments.tasks import dialogues
from experiments.training.texts import corpus

SETS = ("dialogsum", "samsum")


def read(folder: Path, side: str) -> corpus.Corpus:
    documents = []
    for name in SETS:
        places = [f"{name}.{side}.jsonl", f"{name}.{side}.jsonl.xz"]
        files = [folder / place for place in places if (folder / place).is_file()]
        if not files:
            raise ValueError(
                f"{folder} has neither {' nor '.join(places)}: name the folder of the"
                " dialogues"
            )
        pairs = dialogues.read(files[0])
        documents += [f"{dialogues.asked(text)} {summary}" for text, summary in pairs]
    return corpus.Corpus(documents, corpus.digest(documents), len(SETS))
