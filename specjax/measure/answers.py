"""What a conversation goes on with: the target's own answers to the turns before.

They are greedy, made by the target alone and once, so that every drafter, rule and
gamma that is compared goes on with the same words.
"""

from specjax import console, prompts
from specjax.measure.texts import Protocol, write
from specjax.pretrained import Pretrained
from specjax.prompts import Answer
from specjax.sides import Side

NEW_TOKENS = 128  # of an answer, at most, where nothing says
BATCH = 8


def by(target: Side, model: Pretrained, new_tokens: int = NEW_TOKENS) -> Answer:
    """`answer` of `prompts.read`. model: what reads prompts, with its tokenizer."""

    def answer(conversations: list[list[int]]) -> list[str]:
        asked, count = prompts.as_read(conversations, model), len(conversations)
        batch = min(BATCH, count)
        # Of so many tokens that no conversation is left without its answer.
        sizes = dict(tokens=count * new_tokens, new_tokens=new_tokens, batch=batch)
        label = f"Answering {count} turns by {target.name} alone"
        with console.announced(label):
            text = write(target, asked, Protocol("answers", 0.0, **sizes))
        return [model.tokenizer.decode(ids.tolist()) for ids in text.rows()]

    return answer
