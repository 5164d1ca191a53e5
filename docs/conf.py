"""How `make docs` renders these pages: Sphinx with myst, the API from docstrings."""

import specjax

project = "specjax"
author = "The specjax authors"
release = specjax.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "specjax"
default_role = "code"  # one backtick is code, as in the docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
