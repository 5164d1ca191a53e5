"""The drafters, which propose tokens: one file each, with a `build` that makes one."""

import importlib
import pkgutil

for found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{found.name}")
