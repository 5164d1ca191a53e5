"""The quality of the texts that a model writes alone: BLEU of translations, ROUGE of
summaries.

It shows that the model is a real one. Argmax texts are scored against human references:
BLEU and chrF by sacrebleu, ROUGE F1 in per cent by rouge-score, as papers report them.
"""

from functools import partial
from pathlib import Path

import numpy as np
import sacrebleu
import sentencepiece
from jax import Array

from experiments import tasks
from specjax import generate
from specjax.checkpoints import Pretrained
from specjax.generate import Output
from specjax.inputs import make_request, make_sampling
from specjax.keys import root_key
from specjax.measure.row import Measurement
from specjax.measure.texts import take
from specjax.pretrained import files_of
from specjax.prompts import Prompts
from specjax.runtime import progress
from specjax.types import Params

ROUGES = ("rouge1", "rouge2", "rougeL")
METRICS = ("bleu", "rouge")


def build(
    target: Pretrained,
    task: str,
    *,
    metric: str,
    tokenizer: str = "",
    new_tokens: int = 64,
    batch: int = 32,
) -> Measurement:
    """Returns the measurement of one row.

    Args:
        metric: "bleu" or "rouge".
        tokenizer: a SentencePiece file, "" for the bundled T5 family's.
        new_tokens: the most tokens of a text.

    Raises:
        ValueError: the metric is unknown, the task has no references, or there is no
            model.
    """
    source = tasks.read(task)
    if metric not in METRICS:
        raise ValueError(f"no metric {metric!r}: use {' or '.join(METRICS)}")
    if not source.references:
        raise ValueError(f"{task} has no references to score texts against")
    if not isinstance(target, Pretrained):
        raise ValueError(f"{target.name} only drafts: name a model")
    pieces = Path(tokenizer) if tokenizer else tasks.T5_TOKENIZER
    run = partial(
        measure,
        target,
        source,
        metric=metric,
        tokenizer=str(pieces),
        new_tokens=new_tokens,
        batch=batch,
    )
    files = *files_of(target), *source.files, pieces
    return Measurement(run, __name__, files, target.dtype)


def measure(
    target: Pretrained,
    task: tasks.Task,
    *,
    metric: str,
    tokenizer: str,
    new_tokens: int,
    batch: int,
) -> dict:
    """Returns the scores, and some texts with their references."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
    ids = write(target, task.prompts, new_tokens=new_tokens, batch=batch)
    texts = [pieces.decode(row) for row in ids]
    score = bleu if metric == "bleu" else rouge
    examples = zip(task.references[:5], texts[:5], strict=True)
    return {
        "target": target.name,
        **score(texts, task.references),
        "texts": len(texts),
        "tokens": sum(map(len, ids)),
        "examples": [{"reference": a, "text": b} for a, b in examples],
    }


def write(
    target: Pretrained, prompts: Prompts, *, new_tokens: int, batch: int
) -> list[list[int]]:
    """Returns the argmax text after every prompt, without start, end and padding."""
    count = len(prompts.tokens)
    slots = max(map(len, prompts.tokens)) + new_tokens + 1
    run, params = generate.autoregressive(target.model, slots), Params(target.params)
    sampling, written = make_sampling(batch, 0.0), []
    key = root_key(0)  # never drawn from at temperature 0
    for at in progress.track(range(0, count, batch), f"{target.name}: texts"):
        prompt = take(prompts, range(at, at + batch))
        request = make_request(key, prompt, new_tokens, sampling, prompts.ends)
        written += without_prompts(run(params, prompt, request), prompt.length)
    ends = set(prompts.ends)
    return [[i for i in row.tolist() if i not in ends] for row in written[:count]]


def without_prompts(out: Output, start: Array) -> list[np.ndarray]:
    """Returns the text of each row from `start` [B] on."""
    spans = zip(np.asarray(start), np.asarray(out.length), strict=True)
    rows = zip(np.asarray(out.tokens), spans, strict=True)
    return [row[slice(*span)] for row, span in rows]


def bleu(texts: list[str], references: list[str]) -> dict:
    """Returns corpus BLEU and chrF, with the signature that sacrebleu requires for a
    comparison.
    """
    metric = sacrebleu.metrics.BLEU()
    return {
        "bleu": metric.corpus_score(texts, [references]).score,
        "chrf": sacrebleu.metrics.CHRF().corpus_score(texts, [references]).score,
        "signature": str(metric.get_signature()),
    }


def rouge(texts: list[str], references: list[str]) -> dict:
    """Returns mean ROUGE-1, -2 and -L F1, with stemming, in percent."""
    from rouge_score import rouge_scorer  # with nltk: every reader of settings waits

    scorer = rouge_scorer.RougeScorer(ROUGES, use_stemmer=True)
    each = [scorer.score(*pair) for pair in zip(references, texts, strict=True)]
    return {
        name: float(100 * np.mean([score[name].fmeasure for score in each]))
        for name in ROUGES
    }
