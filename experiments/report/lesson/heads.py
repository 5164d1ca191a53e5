"""The tokens per call with different drafts for one target, from the records of heads
and trees.

Each row is by an exact rule. Those of a group are of the same prompts.
"""

from collections.abc import Iterator

from experiments import catalogue
from experiments.records.table import Records
from experiments.report.lesson.export import join_firmly, record_numbers

HEAD, TREES, TRAINED = "heads", "trees", "heads_data"  # folders of records
GROUPS = {  # what is decoded, by its task
    "code": "the library's prompts",
    "runs/heads/held_out.jsonl": "functions of pip",
    "runs/data/spec_bench.jsonl": "SmolLM2 on MT-bench",
}
CALLED = {"code_small": "the small draft"}  # where a table's words leave it out
COUNTED = "code_t0_bigram_8", "code_t1_bigram_8"  # beside the small draft's rows
ASKED = {  # rows of the exercises
    "sampled": (HEAD, "eagle3_t1_token_4"),
    "certain": (HEAD, "eagle3_t1_certain_4"),
    "chain": (HEAD, "eagle3_t1_block_8"),
    "grown": (HEAD, "eagle3_t1_grown_16"),
    "copied_warm": (TRAINED, "copying_t1"),
    "copied_cold": (TRAINED, "copying_t0"),
    "both_cold": (TRAINED, "seed_0_copying_t0"),
}


def rank_rows(results: Records) -> dict:
    """Returns the rows of each group of prompts, most tokens per call first, and the
    numbers that the exercises name.

    Raises:
        ValueError: a record that an exercise needs is missing.
    """
    asked = {key: record_numbers(results, *it) for key, it in ASKED.items()}
    rows = [*head_rows(results), *folder_rows(results, TRAINED)]
    there = {it["group"] for it in rows}
    return {
        "groups": [group for group in GROUPS.values() if group in there],
        "drafts": sorted(rows, key=lambda it: -it["tokens"]),
        "asked": {key: row_numbers(it) for key, it in asked.items()},
    }


def head_rows(results: Records) -> Iterator[dict]:
    """Yields the rows of the bundled head; and from the table of trees those of
    bigrams, and those of the small draft where it is drafted and verified like the
    head.
    """
    yield from folder_rows(results, HEAD)
    there = results[HEAD]
    alike = {row.replace("eagle3_", "code_") for row in there}
    alike -= {row.replace("small_", "code_") for row in there}  # has it itself
    for it in folder_rows(results, TREES):
        if it["row"] in alike or it["row"] in COUNTED:
            yield it


def folder_rows(results: Records, folder: str) -> Iterator[dict]:
    """Yields the rows of a folder that count accepted tokens on texts in `GROUPS`.

    Raises:
        ValueError: the rule of such a row is not exact.
    """
    titles = row_titles(folder)
    for row, record in results.get(folder, {}).items():
        it = record["measured"]
        if row not in titles or "counts" not in it.get("estimates", {}):
            continue  # of times, or of a tree's shape
        group = GROUPS.get(it["protocol"]["task"])
        if group is None:
            continue
        if it["exactness"] != "exact law":
            raise ValueError(f"{folder} {row}: its rule is {it['exactness']}")
        drafted = CALLED.get(it["draft"].removeprefix("tree of "))
        title = f"{drafted}, {titles[row]}" if drafted else titles[row]
        yield {
            "row": row,
            "name": join_firmly(title),
            "group": group,
            "heat": it["protocol"]["temperature"],
            "date": record["provenance"]["date"][:10],
            **row_numbers(it),
        }


def row_numbers(it: dict) -> dict:
    """Returns the tokens per call of a row, and the share of its tested tokens that
    were accepted (for a tree, of its levels), with the standard error.
    """
    share = it["estimates"]["counts"]
    numbers = {"share": share["value"], "se": share["se"]}
    return {"tokens": it["tokens_per_call"]} | numbers


def row_titles(folder: str) -> dict[str, str]:
    """Returns the titles that a table gives to the rows of a folder, without their
    temperature."""
    table = catalogue.find_table(TREES if folder == TREES else HEAD)
    return {
        line.row: ", ".join(
            part
            for part in line.what.rpartition(":")[0].split(", ")
            if not part.startswith("T = ")
        )
        for line in table.lines
        if line.folder == folder
    }
