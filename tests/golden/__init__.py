"""Golden texts protect every count in the records.

A case is a family of models, a drafter and a rule on two prompts, greedy and at
temperature 1, 32 tokens each. Its JSON file has the ids, the counts of calls and of
accepted tokens, and alpha. `python -m tests.golden` writes the files again; whoever
does so because a text moved on purpose says why in a line of the changelog, and raises
`GOLDENS` in `measure/provenance.py` if there are records of such texts.
"""
