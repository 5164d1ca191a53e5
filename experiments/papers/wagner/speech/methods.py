"""The ways to verify that a row of speech compares, by the names of its numbers."""

from typing import NamedTuple

KEPT = "experiments.papers.wagner.methods:everything"  # every draft, without a bound
TOP_K = 50  # the default of the Transformers library, which the paper decodes with


class Method(NamedTuple):
    """rule: by its name in `specjax.verifiers`, None to decode without a draft. top_k:
    of target and draft alike, None without. temperature: of both."""

    name: str
    rule: str | None
    top_k: int | None = None
    temperature: float = 1.0


def of_errors(
    scales: tuple[float, ...], sigmoids: tuple[str, ...] = ("sigmoid",)
) -> list[Method]:
    """Drawn texts of the target alone, exact, by each rule of sigmoids at +-each scale,
    and with every draft kept; all of them with and without the library's filter; and
    argmax texts of the target alone, and exact."""
    methods = [Method("greedy_alone", None, None, 0.0)]
    methods.append(Method("greedy_exact", "token", None, 0.0))
    for top_k, end in (None, ""), (TOP_K, f"_top{TOP_K}"):
        methods.append(Method(f"alone{end}", None, top_k))
        methods.append(Method(f"exact{end}", "token", top_k))
        methods += [
            Method(f"{spelled(s, rule)}{end}", f"{rule}:{s:g}", top_k)
            for rule in sigmoids
            for s in scales
        ]
        methods.append(Method(f"always{end}", KEPT, top_k))
    return methods


def spelled(scale: float, rule: str = "sigmoid") -> str:
    """1000 -> sigmoid_1e3."""
    mantissa, _, exponent = f"{scale:.0e}".partition("e")
    return f"{rule}_{mantissa}e{int(exponent)}"
