"""Small pairs whose matrices go over eight devices, decoded on one and on several.

Run as a module, on eight devices that a CPU acts as, it prints "same" for every family
and mesh of `CASES`, and what `test_mesh` reads of their programs.
"""
