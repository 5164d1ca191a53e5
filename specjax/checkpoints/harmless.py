"""Fields of config.json that change nothing of what a decoder computes."""

import reprlib
from collections.abc import Collection

from specjax.checkpoints.fields import Fields

FIELDS = {
    # What the file is, and how it was made.
    "model_type",
    "architectures",
    "transformers_version",
    "_name_or_path",
    "torch_dtype",
    "dtype",
    "initializer_range",
    "attention_dropout",
    "unsloth_fixed",
    "unsloth_version",
    # How it is run.
    "use_cache",
    "cache_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "pretraining_tp",
    "chunk_size_feed_forward",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "tie_last_hidden_states",
    "torchscript",
    "use_bfloat16",
    # Labels of other tasks, tokens that end nothing, and how texts are drawn.
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "task_specific_params",
    "pad_token_id",
    "decoder_start_token_id",
    "sep_token_id",
    "tokenizer_class",
    "is_decoder",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "max_length",
    "min_length",
    "num_beams",
    "num_return_sequences",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "early_stopping",
    "chat_template",
}


def refuse_others(fields: Fields, known: Collection[str]) -> None:
    """Raises ValueError for a field that is not null, not known and not harmless."""
    for name, value in fields.items():
        if value is not None and name not in known and name not in FIELDS:
            raise ValueError(
                f"config.json: {name} is {reprlib.repr(value)}, a field that is not"
                " known for this model_type and may change what the model computes:"
                " where it does not, take it out"
            )
