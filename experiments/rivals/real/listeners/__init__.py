"""Engines that write down speech, a module each, which imports that engine alone.

`load(path, kind, threads)` gives `plain`: file -> [text, ids]. All hear English, decode
greedily at one temperature, write no times and know no earlier text.
"""
