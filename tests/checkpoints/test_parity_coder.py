"""A published pair for code, read from its four-bit GGUF files, gives the texts of
transformers.

The files are those of `gin_configs/checkpoints/qwen2_5_coder.gin`, 1.6 GB, which are
never fetched here: skipped where they are absent. Float32 on both sides; of the models,
one is in memory at a time.
"""

import gc
from pathlib import Path

import pytest

import specjax

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
for library in ("gguf", "accelerate"):
    pytest.importorskip(library)

FOLDER = Path(__file__).resolve().parents[2] / "runs/qwen"
TOKENS = 24
ASKED = (
    "Write a Python function that reverses a list in place.",
    "What is 17 * 23? Think step by step.",
    "Translate into German: the river is cold in spring.",
    "Explain in one sentence what a hash table is.",
)


@pytest.mark.parametrize("size", ["0.5b", "1.5b"])
def test_greedy_ids_are_those_of_transformers(size):
    file = FOLDER / f"qwen2.5-coder-{size}-instruct-q4_k_m.gguf"
    if not file.is_file():
        pytest.skip(f"{file} is absent: see gin_configs/checkpoints/qwen2_5_coder.gin")
    chats = [[{"role": "user", "content": text}] for text in ASKED]
    prompts, wanted = greedy_by_transformers(file, chats)
    ours = specjax.load(file)
    assert [ours.tokenizer.converse(chat) for chat in chats] == prompts
    said = specjax.generate_text(
        ours, "copying", [{"tokens": ids} for ids in prompts], new_tokens=TOKENS
    )
    assert [ids[: len(of)] for ids, of in zip(said.ids, wanted, strict=True)] == wanted


def greedy_by_transformers(file: Path, chats: list) -> tuple[list, list]:
    """Returns the ids of each chat and the ids that a greedy text adds to it."""
    at = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    names = transformers.AutoTokenizer.from_pretrained(**at)
    model = transformers.AutoModelForCausalLM.from_pretrained(**at, dtype=torch.float32)
    prompts, texts = [], []
    for chat in chats:
        prompt = names.apply_chat_template(chat, add_generation_prompt=True)
        ids = list(getattr(prompt, "input_ids", prompt))
        with torch.no_grad():
            (text,) = model.generate(
                torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False
            ).tolist()
        prompts.append(ids)
        texts.append(text[len(ids) :])
    del model
    gc.collect()
    return prompts, texts
