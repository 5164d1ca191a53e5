"""The sizes of a model, as a bundled file's metadata holds them: JSON, checked."""

import json

from specjax.models import gpt, llama, t5, whisper
from specjax.zoo import fields

FAMILIES = {"gpt": gpt, "t5": t5, "llama": llama, "whisper": whisper}
Config = gpt.Config | t5.Config | llama.Config | whisper.Config


def written(config: Config) -> dict[str, str]:
    """The metadata that `read` reads."""
    family = next(n for n, m in FAMILIES.items() if isinstance(config, m.Config))
    return {"family": family, "config": json.dumps(fields.written(config))}


def read(metadata: dict[str, str]) -> tuple[str, Config]:
    """The family and the sizes. Raises ValueError for any that no model has."""
    family = metadata.get("family", "gpt")
    if family not in FAMILIES:
        raise ValueError(f"its family is {family!r}; known are {', '.join(FAMILIES)}")
    try:
        sizes = json.loads(metadata["config"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its sizes are not JSON: {error}") from None
    config = fields.read(sizes, FAMILIES[family].Config)
    check(config)
    return family, config


def check(config: Config) -> None:
    """Raises ValueError for fields that do not go together."""
    match config:
        case t5.Config():
            if config.pieces is not None and config.pieces > config.vocab:
                raise ValueError(f"pieces {config.pieces} exceeds vocab {config.vocab}")
            if config.gate not in t5.GATES:
                known = ", ".join(t5.GATES)
                raise ValueError(f"gate is {config.gate!r}; known are {known}")
        case llama.Config():
            _check_llama(config)
        case _:
            _check_heads(config)


def _check_heads(config: gpt.Config | whisper.Config) -> None:
    if config.dim % config.num_heads:
        raise ValueError(f"dim {config.dim} is no multiple of heads {config.num_heads}")
    if config.positions is None and config.head_width % 2:
        raise ValueError(f"rotary heads are of even width, not {config.head_width}")


def _check_llama(config: llama.Config) -> None:
    if config.style not in llama.STYLES:
        known = ", ".join(llama.STYLES)
        raise ValueError(f"style is {config.style!r}; known are {known}")
    if config.num_heads % config.key_heads:
        raise ValueError(
            f"heads {config.num_heads} are no multiple of key_heads {config.key_heads}"
        )
    if config.head_width % 2:
        raise ValueError(f"rotary heads are of even width, not {config.head_width}")
    if max(config.local, default=0) >= config.num_layers:
        raise ValueError(f"local names layer {max(config.local)}, which is not there")
    if config.local and config.window is None:
        raise ValueError("local layers need a window")
