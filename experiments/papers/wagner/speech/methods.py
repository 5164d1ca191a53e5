"""The ways of verifying that a row of speech compares, by the names of their
numbers."""

from typing import NamedTuple

KEPT = "experiments.papers.wagner.methods:everything"  # every draft, without a bound
TOP_K = 50  # the default of the Transformers library, which the paper decodes with


class Method(NamedTuple):
    """A way to transcribe: a rule, its parameters and a name.

    Attributes:
        rule: by its name in `specjax.verifiers`, None to decode without a draft.
        top_k: the top-k of target and draft alike, None without.
        temperature: the temperature of both.
    """

    name: str
    rule: str | None
    top_k: int | None = None
    temperature: float = 1.0


def error_methods(
    scales: tuple[float, ...], sigmoids: tuple[str, ...] = ("sigmoid",)
) -> list[Method]:
    """Returns the methods that a row of word errors compares.

    They are sampled texts of the target alone, exact ones, ones by each rule of
    sigmoids at +-each scale, and ones with every draft kept, each with and without the
    library's filter; and argmax texts of the target alone, and exact ones.
    """
    methods = [Method("greedy_alone", None, None, 0.0)]
    methods.append(Method("greedy_exact", "token", None, 0.0))
    for top_k, end in (None, ""), (TOP_K, f"_top{TOP_K}"):
        methods.append(Method(f"alone{end}", None, top_k))
        methods.append(Method(f"exact{end}", "token", top_k))
        methods += [
            Method(f"{scale_name(s, rule)}{end}", f"{rule}:{s:g}", top_k)
            for rule in sigmoids
            for s in scales
        ]
        methods.append(Method(f"always{end}", KEPT, top_k))
    return methods


def scale_name(scale: float, rule: str = "sigmoid") -> str:
    """Returns the name of a scale: 1000 is sigmoid_1e3."""
    mantissa, _, exponent = f"{scale:.0e}".partition("e")
    return f"{rule}_{mantissa}e{int(exponent)}"
