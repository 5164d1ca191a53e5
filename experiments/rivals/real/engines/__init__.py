"""Engines of language models, a module each, which imports that engine alone.

`load(path, kind, room, gamma, ends, threads)` gives programs by name: (prompts,
new_tokens) -> new ids of each prompt, greedy, at most so many. `plain` decodes alone;
`lookup` drafts gamma ids that followed the last ones before; `drafted` by a model.
kind: of the arithmetic. room: most new ids. ends: ids that each end a text.
"""
