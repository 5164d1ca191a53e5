"""The golden cases as data: which target, draft and rule decode what.

A new draft, rule or policy has one by its name; to add another, add a line to `NAMED`
or `LISTED`. `python -m tests.golden NAME` writes its file, and `tests.golden.runs`
decodes it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from specjax import drafts, policies, verifiers, zoo
from specjax.exactness import small_drafts


class Case(NamedTuple):
    """A target and a draft, with every setting that decides a text.

    Attributes:
      target: a name of `runs.MODELS`.
      draft: a name of `runs.DRAFTS` or `runs.MODELS`, or of `specjax.drafts`; of the
        target "table" a name of `specjax.exactness.small_drafts`. "" decodes the target
        alone.
      rule: a name of `specjax.verifiers`.
      policy: a name of `specjax.policies`.
      gamma: drafted tokens, or nodes of a tree.
      top_k: of every row; None keeps all.
      top_p: of every row; None keeps all.
      min_p: of every row; None keeps all.
      scored: whether alpha is computed from both models' probabilities too.
      rules: a name of `runs.RULES`, which constrains both models; "" is none.
    """

    target: str
    draft: str = ""
    rule: str = "token"
    policy: str = "none"
    gamma: int = 4
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    scored: bool = False
    rules: str = ""


class SpeechCase(NamedTuple):
    """A small Whisper and its draft, which transcribe noise."""

    rule: str = "token"
    gamma: int = 2


class BeamCase(NamedTuple):
    """A target and a draft of its vocabulary, for beam search.

    Attributes:
      target, draft: names of `runs.MODELS`.
      width: see `specjax.beam.settings.BeamConfig`, as all below.
    """

    target: str
    draft: str
    width: int = 3
    gamma: int = 3
    length_penalty: float = 1.0
    early_stopping: bool | str = False


def chain(draft: str, rule: str = "token", **settings) -> Case:
    """Returns a case of the target "table", by the name of its draft."""
    return Case("table", draft, rule, **{"gamma": 2} | settings)


def tree(draft: str, rule: str, **settings) -> Case:
    """Returns a case of the target "table", by the name of its draft of trees."""
    return Case("table", draft, rule, **{"gamma": 4} | settings)


def file_name(case: Case) -> str:
    """Returns the file name of a case, made of its settings: table_tree_q_recursive."""
    policy = "" if case.policy == "none" else case.policy
    words = case.target, case.draft, case.rule, policy, case.rules
    return "_".join(re.sub(r"\W+", "_", word) for word in words if word)


# Kinds of trees, constraints, and names that need options or another target.
NAMED = (
    chain("q_some"),
    chain("q_other"),
    chain("copying_else:draft=q,least=1,short=1"),
    chain("hierarchy:q,bigram,gammas=2", gamma=3),
    *(chain(kind) for kind in small_drafts.HEADS),
    chain("q", rules="penalties"),
    chain("q", "block", rules="grammar"),
    tree("lookahead:tokens=3", "match"),
    tree("suffix:paths=2", "recursive"),
    tree("recycling:accept=0.6/0.3", "match"),
    tree("tree:draft=q,width=3", "traversal"),
    tree("tree:draft=q,accept=0.6/0.3,longest=2", "recursive"),
    tree("tree:draft=q,siblings=with", "recursive_replaced"),
    tree("tree:draft=q,siblings=with", "kseq"),
    tree("tree:draft=q,siblings=with,paths=2", "greedy_block"),
    tree("tree:draft=q,grown=0.3/0.2", "traversal"),
    tree("tree:draft=q,copied=2", "recursive_replaced"),
    tree("tree:draft=q_some", "recursive"),
    tree("tree:draft=medusa,width=2", "recursive"),
    tree("tree:draft=eagle,grown=0.4/0.3", "recursive"),
    tree("tree:draft=bigram,best=2,floors=0.1", "recursive"),
    tree("tree:draft=q", "recursive", rules="grammar"),
    Case("code_small", "suffix"),
    *(Case("code_target", head) for head in zoo.HEADS),
    Case("code_small", "t5_decoder"),
    Case("code_small", "strings:draft=t5_decoder"),
    Case("code_small", "tree:draft=bigram", "recursive", rules="penalties"),
    Case("t5_base", "anchored"),
)

AnyCase = Case | SpeechCase | BeamCase

LISTED: dict[str, AnyCase] = {
    "beams_llama": BeamCase("llama", "near_llama"),
    "beams_t5": BeamCase("t5_base", "t5_small", early_stopping="never"),
    "code_token": Case("code_target", "code_small", scored=True),
    "code_block": Case("code_target", "code_small", "block"),
    "code_alone": Case("code_small"),
    "bigram_token": Case("code_small", "bigram", scored=True),
    "bigram_block": Case("code_small", "bigram", "block"),
    "bigram_rejection": Case("code_small", "bigram", "rejection"),
    "bigram_match": Case("code_small", "bigram", "match"),
    "bigram_gumbel": Case("code_small", "bigram", "gumbel"),
    "bigram_lenient": Case("code_small", "bigram", "lenient:0.5"),
    "bigram_sigmoid": Case("code_small", "bigram", "sigmoid:1000"),
    "bigram_adaptive": Case("code_small", "bigram", policy="adaptive", gamma=6),
    "bigram_top_k": Case("code_small", "bigram", top_k=40),
    "bigram_top_p": Case("code_small", "bigram", top_p=0.9),
    "bigram_truncated": Case("code_small", "bigram", "block")._replace(
        top_k=50, top_p=0.95, min_p=0.02
    ),
    "unigram_token": Case("code_small", "unigram"),
    "random_token": Case("code_small", "random"),
    "copying_token": Case("code_small", "copying"),
    "copying_adaptive": Case("code_small", "copying", policy="adaptive"),
    "early_exit_token": Case("code_small", "code_first_layer"),
    "int8_token": Case("code_small_int8", "bigram"),
    "t5_token": Case("t5_large", "t5_small", scored=True),
    "t5_block": Case("t5_base", "t5_small", "block"),
    "t5_bigram": Case("t5_base", "t5_bigram"),
    "t5_copying": Case("t5_base", "copying"),
    "llama_token": Case("llama", "near_llama", scored=True),
    "qwen3_gumbel": Case("qwen3", "near_qwen3", "gumbel"),
    "gemma2_block": Case("gemma2", "near_gemma2", "block", gamma=3),
    "gemma3_token": Case("gemma3", "near_gemma3", gamma=3),
    "speech_token": SpeechCase(),
    **{file_name(case): case for case in NAMED},
}


def missing_cases() -> Iterator[Case]:
    """Yields a case for each draft, rule and policy that no case above has."""
    cases = [case for case in LISTED.values() if isinstance(case, Case)]

    def unused_names(field: str, names: Iterable[str]) -> list[str]:
        used = {getattr(case, field).partition(":")[0] for case in cases}
        return [name for name in names if name not in used]

    yield from map(chain, unused_names("draft", drafts.DRAFTS))
    for rule in unused_names("rule", [*verifiers.EXACT, *verifiers.LOSSY]):
        yield chain("q", rule)
    for policy in unused_names("policy", policies.POLICIES):
        yield chain("q", policy=policy, gamma=3)


CASES = LISTED | {file_name(case): case for case in missing_cases()}
