"""The examples in README.md and docs run, and every name in them exists."""

import ast
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import specjax
from experiments import catalogue
from experiments.report import headline, runs, tables, typeset
from specjax import __main__, configs
from specjax.checkpoints import published
from specjax.cli import workers
from specjax.verifiers import token
from tests.support import head_folders, text_folders

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([a-z{}]*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Models and files of a reader's own, as what stands here for them.
BUNDLED = {
    "TARGET": "code_target",
    "DRAFT": "code_small",
    "google/flan-t5-large": "t5_target",
    "google/flan-t5-small": "t5_small",
    "runs/llama/target": "code_target",
    "runs/llama/draft": "code_small",
    "openai/whisper-large-v3": "speech_target",
    "distil-whisper/distil-large-v3": "speech_small",
    "smollm2": "code_target",
    "smollm2_draft": "code_small",
    "whisper-base": "speech_target",
    "slurm": "local",
}
# Flags that a command is given last, so that it ends soon.
BRIEF = {
    "demo": "--n_tokens_to_generate 4 --K 2",
    "measure": "--tokens 8 --texts 2 --rounds 1 --gammas 2",
    "transcribe": "--gamma 2",
    "microscope": "",
    "certify": "",
    "compare": "",
    "run": "--gin.DRAFT=\"'random'\" --gin.TOKENS=8 --gin.NEW_TOKENS=4 --gin.BATCH=2",
}
BRIEF["sweep"] = BRIEF["run"] + " --on local"
BRIEF["train-draft"] = "--texts 8 --together 8 --tokens 8 --batch 2 --steps 2"
BRIEF["train-draft"] += " --warmup 0 --fall 0"
BRIEF["decode"] = "--tokens 4 --batch 2 --on local"
PACKAGES = "specjax", "experiments", "tests"
README = (ROOT / "README.md").read_text()
SPOKEN = ROOT / "specjax/zoo/speech/speech.flac"


def commands(program: str) -> list[str]:
    """Returns the commands that a reader is told to type, each once."""
    found = {}
    for page in PAGES:
        for _, block in FENCE.findall(page.read_text("utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                line = re.sub(r"\s+", " ", line.partition("    #")[0]).strip()
                line = line.removeprefix("PYTHONPATH=. ")
                if line.startswith(f"{program} "):
                    found[line] = page
    return [*found]


def test_what_is_to_be_made_or_installed_is_there():
    makefile, setup = ((ROOT / name).read_text() for name in ("Makefile", "setup.py"))
    names = re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)
    for name in [*names, *(line.split()[1] for line in commands("make"))]:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
    assert commands("pip install")
    for line in commands("pip install"):
        what, *_ = shlex.split(line.removeprefix("pip install "))
        place, extras = re.fullmatch(r"(\.)(?:\[(.*)\])?", what).groups()
        assert place == "."  # from a checkout: no index has it
        for extra in filter(None, (extras or "").split(",")):
            assert f'"{extra}":' in setup, line


def test_extras_of_the_makefile_are_found_by_any_pip():
    makefile, setup = ((ROOT / name).read_text() for name in ("Makefile", "setup.py"))
    named = re.findall(r"\.\[([\w,-]+)\]", makefile)
    extras = {extra for names in named for extra in names.split(",")}
    assert {"test", "llama-cpp"} <= extras
    for extra in extras:
        assert f'"{extra}":' in setup, extra
        # A wheel's metadata has no "_" in it, which pip before 23.3 does not expect.
        assert "_" not in extra


def test_rows_that_are_named_are_there():
    text = "".join(map(Path.read_text, PAGES))
    named = re.findall(r"gin_configs/[\w/]+\.gin(?::\w+)?", text)
    assert len(named) > 10
    for file, _, row in (name.partition(":") for name in named):
        assert configs.rows(configs.RowFile(ROOT / file, row=row or None))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that a reader is told to have."""
    shutil.copy(ROOT / "docs/my_parts.py", tmp_path)
    prompts = "".join(f'{{"prompt": "def f{n}("}}\n' for n in range(4))
    sentence = '{"prompt": "translate English to German: Where is it?"}\n'
    for name in ("prompts.jsonl", "held_out.jsonl"):
        (tmp_path / name).write_text(prompts)
    (tmp_path / "mine.jsonl").write_text('{"text": "def f0(x):"}\n')
    question = '{"question_id": 1, "category": "qa", "prompt": "def f("}\n'
    (tmp_path / "question.jsonl").write_text(question)
    (tmp_path / "sentences.jsonl").write_text(sentence * 4)
    other = '{"prompt": "def add(", "text": "a, b):\\n    return a"}\n'
    (tmp_path / "other.jsonl").write_text(other)
    blocks = [text for page in PAGES for _, text in FENCE.findall(page.read_text())]
    row = next(text for text in blocks if "runs/alpha.gin" in text)
    row = row.replace("google/flan-t5-large", "code_small")
    (tmp_path / "pair.gin").write_text(row)
    whole = specjax.load("code_target").required_config
    head_folders.write_medusa(tmp_path / "HEAD", 4, dim=whole.dim, vocab=whole.vocab)
    own = "talk.mp3", "interview.flac", "recording.wav"
    for name in (*own, "specjax/zoo/speech/speech.flac"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SPOKEN, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_parts", raising=False)
    return tmp_path


@pytest.mark.slow
def test_every_command_runs(desk, monkeypatch, capsys):
    """They run in the order of the pages, so that a file is written before it is
    compared."""
    monkeypatch.setattr(workers, "GPUS", ("/",))
    assert {line.split()[1] for line in commands("specjax")} >= {*BRIEF}
    for line in commands("specjax"):
        if line.startswith("specjax fetch"):  # by the network
            assert set(shlex.split(line)[2:]) <= {*published.MODELS}
            continue
        words = [BUNDLED.get(word, word) for word in shlex.split(line)]
        if "--models_dir" in words:  # sizes of GPT-2 that nobody here has
            continue
        brief = BRIEF[words[1]]
        if "--by" in words:  # of every question
            brief = brief.replace("--texts 2 ", "")
        if "local" in brief and "--partition" in words:  # of the other launcher
            at = words.index("--partition")
            del words[at : at + 2]
        words += shlex.split(brief)
        if words[1] == "compare":
            shutil.copy("a.jsonl", "b.jsonl")
        monkeypatch.setattr(sys, "argv", words)
        try:
            code = __main__.main()
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        assert not code and printed.out, (line, code, printed.err)


def test_the_examples_run_and_are_short(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    lengths = [len([line for line in block.splitlines() if line]) for block in blocks]
    assert len(blocks) == 2 and lengths[0] == 5 and lengths[1] <= 12
    assert len(README.splitlines()) <= 130
    assert max(map(len, README.splitlines())) <= typeset.LIMIT
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 88
    exec(compile(blocks[1], "README.md", "exec"), names := {})
    first, second = capsys.readouterr().out.split("\n-----\n")
    assert first.startswith("def add(") and second.startswith("class Stack:\n")
    assert (names["decoded"].length > names["request"].start).all()


def test_the_example_with_a_model_that_is_fetched_runs(tmp_path, capsys):
    """A small model of the same kind of files replaces it."""
    for library in ("tokenizers", "jinja2"):
        pytest.importorskip(library)
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    stand_ins = {"smollm2": str(text_folders.gpt2(tmp_path / "gpt2"))}
    stand_ins |= {"smollm2_draft": "copying", "96": "12"}
    for name, other in stand_ins.items():
        assert name in block
        block = block.replace(f'"{name}"', f'"{other}"').replace(
            f"={name}", f"={other}"
        )
    exec(compile(block, "README.md", "exec"), {})
    alone, first, second = capsys.readouterr().out.splitlines()
    for drafted in (first, second):
        assert alone.partition("alpha=None")[0] == drafted.partition("alpha=")[0]
        assert "alpha=None" in alone and "alpha=None" not in drafted


def ran(guide: str) -> list[dict]:
    """Returns the names that each Python block of a guide leaves, with a small model in
    place of the target."""
    text, found = (ROOT / f"docs/guides/{guide}.md").read_text(), []
    for source in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        source = source.replace('"code_target"', '"code_small"')
        exec(compile(source, guide, "exec"), names := {})
        found.append(names)
    return found


def test_the_guides_choice_of_kernels_is_the_reference_on_a_cpu():
    names, *_ = ran("kernels")
    assert names["verifier"] is token.verifier and names["drafter"].gamma == 4


def test_the_guides_server_answers(capsys):
    ran("serving")
    told = re.findall(r"^request (\d+), answered", capsys.readouterr().out, re.M)
    assert sorted(map(int, told)) == [*range(9)]


@pytest.mark.parametrize(
    "guide", ["own", "texts", pytest.param("constraints", marks=pytest.mark.slow)]
)
def test_the_guides_other_examples_run(guide):
    if guide == "constraints":
        pytest.importorskip("outlines_core", reason="needs the extra constraints")
    assert ran(guide)


def test_every_table_is_in_the_index_of_results():
    index = (ROOT / "results/README.md").read_text()
    for table in catalogue.tables():
        assert f"[md]({table.page}.md)" in index and f"`{table.command}`" in index


def test_the_headline_is_what_the_records_say():
    records = tables.collect(ROOT / "results")
    assert headline.render_text(README, records) == README
    shown = headline.items(records)
    lines = re.findall(r"^\| [\w., -]+ \+ .*", README, re.MULTILINE)
    assert len(lines) - 1 == len(shown) == 5  # below a head
    assert not any(re.search(r"\|\s*\|", line) for line in lines)  # no empty cell
    every = runs.all_records(records)
    found = headline.headline_records(records).values()
    assert any(max(runs.speeds(every, it)) < 1 for it in found)  # one always loses
    notes = README.partition(headline.BEGIN)[2].partition(headline.END)[0]
    notes = re.split(r"^\* ", notes, flags=re.MULTILINE)[1:]
    assert notes and max(len(note.strip().splitlines()) for note in notes) <= 2
    for record in records["table2"].values():
        record["measured"]["best_speedup"] += 1
    assert headline.render_text(README, records) != README


def test_files_that_are_named_are_there():
    linked = re.findall(r"\]\(([^)]+)\)", README)
    named = re.findall(r"`((?:specjax|tests|experiments)/[\w./]+)", README)
    for path in [p for p in linked if "://" not in p] + named:
        assert (ROOT / path).exists(), path


def anchors(page: Path) -> set[str]:
    """Returns the anchors of the headings, as GitHub and myst name them."""
    heads = re.findall(r"^#+ (.*)", FENCE.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


COPIED = ROOT / "docs/notebooks"


def test_every_link_and_anchor_within_resolves():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "results/README.md"]:
        text = FENCE.sub("", page.read_text("utf-8"))
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            there = page.parent / path if path else page
            if there.is_relative_to(COPIED):  # as docs/conf.py does it
                there = ROOT / there.relative_to(ROOT / "docs")
            assert there.exists(), (page, link)
            assert not anchor or anchor in anchors(there), (page, link)
    assert "padded-prompts" in anchors(ROOT / "docs/guides/measuring.md")


def test_every_table_of_a_paper_is_on_its_page_with_its_command():
    for paper in ("leviathan", "chen", "wagner"):
        page = (ROOT / f"docs/papers/{paper}.md").read_text()
        names = json.loads(
            (ROOT / f"experiments/papers/{paper}/lines.json").read_text()
        )
        for name in names.keys() - {"shared"}:
            table = catalogue.find_table(name)
            assert f"`{table.command}` | `results/{table.page}.md` |" in page, name


def test_the_gains_of_methods_are_those_of_the_results():
    guide = (ROOT / "docs/guides/drafts.md").read_text().partition("## Which method")[2]
    rows = re.findall(r"^(\|.*)\| (`.*`.*) \|$", guide, re.MULTILINE)
    assert len(rows) > 10
    for row, pages in rows:
        files = [f"results/{name}.md" for name in re.findall(r"`(\w+)`", pages)]
        files += ["README.md"] if "README.md" in pages else []
        texts = [(ROOT / file).read_text() for file in files]
        known = [float(x) for x in re.findall(r"\d+\.\d+", " ".join(texts))]
        for told in map(float, re.findall(r"\d\.\d\d", row)):
            assert min(abs(told - x) for x in known) < 0.0051, (told, row)


def test_what_is_to_be_run_runs():
    """Every `python -m MODULE` in the documents is a command, and not a module that
    does nothing when it is run."""
    texts = ["*.md", "Makefile", ".ci/run", "docs/**/*.md", "gin_configs/**/*.gin"]
    texts += [f"{x}/**/*.{y}" for x in PACKAGES for y in ("py", "sh")]
    texts += ["results/*.md"]
    files = [path for pattern in texts for path in ROOT.glob(pattern)]
    told = re.compile(rf" -m ((?:{'|'.join(PACKAGES)})[\w.]*\w)")
    named = {name for path in files for name in told.findall(path.read_text("utf-8"))}
    assert {"experiments.training.finetune", "experiments.rivals"} <= named
    for name in named:
        path = ROOT / name.replace(".", "/")
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        last = ast.parse(path.read_text("utf-8")).body[-1]
        assert ast.unparse(last).startswith("if __name__ == '__main__':\n"), name
