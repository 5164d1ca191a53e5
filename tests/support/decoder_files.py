"""Files of a user that rows of decoders name: a tiny pair of Llama's kind, and data."""

import json
import re
import shutil
from pathlib import Path

from experiments.records import records
from specjax import checkpoints, zoo
from specjax.configs import RowFile
from specjax.models import llama
from tests.support import tiny_llama

CONFIG = llama.Config(zoo.CODE_VOCAB, 8, 12, 1, 2, 1, 4)
PROBLEM = {"prompt": "def add(a, b):\n", "entry_point": "add"}
PROBLEM["test"] = "def check(f):\n    assert f(1, 2) == 3\n"
ARTICLE = {"article": "Ann: Hi!\nBob: Hello.", "summary": "They meet."}
LINES = {"humaneval": PROBLEM, "xsum": ARTICLE, "cnndm": ARTICLE}
LINES |= {"dialogues": ARTICLE, "dialogsum": ARTICLE, "gsm8k": {"prompt": "1 + 1?"}}
TEMPLATE = "{% for it in messages %}{{ it.role }}: {{ it.content }}\n{% endfor %}bot:"
TABLES = ("chen_data", "chen_paper", "wagner_data", "wagner_paper", "today_paper")
TABLES += ("table2_data", "table3_data", "kinds_data", "table3_paper")
CHAT = "TARGET_NAME = 'smollm2'"  # in files of rows by a chat model
MODEL = re.compile(r"^(\S+/sides\.model\.name) = ", re.M)


def rows(table: str) -> list[RowFile]:
    """Those of decoders."""
    every = records.rows(table).values()
    return [x for x in every if table != "table3_paper" or x.row.startswith("lamda")]


def write(folder: Path) -> Path:
    """A folder "model" of Hugging Face with a tokenizer, "chat", which has a template
    too, and a file of each task."""
    params, model = tiny_llama.weights(CONFIG, 0), llama.build(CONFIG)
    ends = zoo.START, (zoo.END,)
    whole = checkpoints.Pretrained("tiny", CONFIG, model, params, "float32", (), *ends)
    checkpoints.save(folder / "model", whole)
    shutil.copy(zoo.FOLDER / "tokenizer.model", folder / "model")
    shutil.copytree(folder / "model", folder / "chat")
    (folder / "chat/chat_template.jinja").write_text(TEMPLATE)
    for name, line in LINES.items():
        (folder / f"{name}.jsonl").write_text((json.dumps(line) + "\n") * 3)
    return folder


def over(folder: Path, row: RowFile) -> RowFile:
    """A row that reads these files in the places of its own; another draft stands in
    for one that was made for its target alone."""
    text = row.path.read_text()
    named = re.findall(r"include '(gin_configs/.+)'", text)
    texts = [(row.path.parents[2] / name).read_text() for name in named]
    keys = {key for text in texts for key in MODEL.findall(text)}
    lines = ["from __gin__ import dynamic_registration"]
    lines += ["from specjax import sides"]
    if CHAT in text:
        lines += [f"TARGET_NAME = '{folder / 'chat'}'"]
        lines += ["DRAFT = 'random'"] if "checkpoints/cached" not in text else []
    else:
        lines += [f"{key} = '{folder / 'model'}'" for key in sorted(keys)]
    data = re.findall(r"^(\w+) = 'runs/data/(\w+\.jsonl)'", "\n".join(texts), re.M)
    lines += [f"{macro} = '{folder / name}'" for macro, name in data]
    lines.append("DTYPE = 'float32'")
    path = folder / f"{row.table}_{row.path.stem}.gin"
    path.write_text("\n".join(lines))
    return row._replace(over=(str(path),))
