"""Figure 1 for speech: a recording decoded greedily, one call of the target at a time.

The bundled pair transcribes the bundled recording, in a synthetic voice, so that anyone
can listen to it. The steps are those that `specjax demo --audio` prints; the text is
decoded again without a draft, to count the calls that drafts saved.
"""

from functools import partial
from pathlib import Path

from experiments.papers.leviathan import figure1
from specjax import zoo
from specjax.checkpoints import Pretrained
from specjax.drafts.models import model_source
from specjax.drafts.source import pair_files
from specjax.inputs import make_prompt
from specjax.measure import trace
from specjax.measure.row import Measurement
from specjax.speech import spoken_prompts
from specjax.step import Decoder

BUNDLED = zoo.FOLDER / "speech" / "speech.flac"


def build(
    target: Pretrained,
    draft: Pretrained,
    *,
    gamma: int,
    tokens: int = 96,
    recording: str | Path = BUNDLED,
) -> Measurement:
    """Returns the measurement of one trace; a file beside the recording has the spoken
    text.

    Raises:
        ValueError: before any compute but the target's encoder, if a model does not
            transcribe, there are no tokens, the sound or its text cannot be read, or as
            `inputs.check`.
    """
    recording = Path(recording)
    spoken = recording.with_suffix(".txt")
    if not spoken.is_file():
        raise ValueError(f"no {spoken}: write what is said in {recording.name} there")
    for model in (target, draft):
        if not isinstance(model, Pretrained) or not spoken_prompts.is_whisper(model):
            raise ValueError(f"{model.name} reads no recordings: name a Whisper")
    tokenizer, source = target.tokenizer, model_source(draft)
    players, prompts = spoken_prompts.from_list(
        [{"audio": str(recording)}], (target, source)
    )
    prompt = make_prompt(prompts.tokens, prompts.inputs)
    case = figure1.make_case(
        players,
        prompt,
        ends=prompts.ends,
        gamma=gamma,
        tokens=tokens,
        tokenizer=tokenizer,
    )
    run = partial(measure, case, recording, spoken)
    files = {*pair_files(target, source), case.tokenizer.file, recording, spoken}
    return Measurement(run, __name__, tuple(sorted(files)), target.dtype, 0)


def measure(case: trace.Case, recording: Path, spoken: Path) -> dict:
    """Returns the steps, and the text and the calls of the target without a draft.

    `same_text` of the result is whether drafts left every token unchanged.
    """
    traced = figure1.measure(case, recording.name)
    alone = case._replace(decoder=Decoder(case.decoder.target))
    ids = [text for text, _ in trace.iterate(alone)]
    written = ids[-1][int(case.prompt.length[0]) :]
    kept = [x for it in traced["steps"] for x in it["accepted"] + it["added"]]
    return traced | {
        "spoken": spoken.read_text("utf-8").strip(),
        "text": case.tokenizer.decode(written).strip(),
        "alone_calls": len(ids),
        "calls_saved": len(ids) - traced["target_calls"],
        "same_text": kept == [case.tokenizer.piece(token) for token in written],
    }
