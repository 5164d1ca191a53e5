"""The settings of `make docs`: Sphinx with myst-nb, the API from docstrings.

Notebooks are shown as they are stored, and never run here.

Formulas become MathML, which browsers draw by themselves: nothing is fetched for them.
"""

import os
import shutil
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml import converter

import specjax

sys.path.insert(0, str(Path(__file__).parent))
import field_lists  # beside this file, as the next one is
import published

project = "specjax"
author = "The specjax authors"
release = specjax.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "jupyter_execute"]
nb_execution_mode = "off"
html_theme = "furo"
html_title = "specjax"
html_show_copyright = False
address = published.check(os.environ.get("SPECJAX_ADDRESS", ""))
if address:
    html_theme_options = {"source_repository": address, "source_branch": "main"}
    html_theme_options["source_directory"] = "docs/"
default_role = "code"  # one backtick is code, as in the docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields as a list, as arguments are
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 2
html_math_renderer = "mathml"


def formula(display: str):
    """Writes a node of mathematics as MathML, in a line or in a block of its own."""

    def visit(translator, node) -> None:
        translator.body.append(converter.convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit


def skip_numbered_field(app, what, name, obj, *rest) -> bool | None:
    """Leaves out the fields of a NamedTuple that have no text of their own.

    Their class describes them; Python's text of each is "Alias for field number 0".
    """
    return (getattr(obj, "__doc__", None) or "").startswith("Alias for") or None


def setup(app) -> None:
    app.connect("autodoc-skip-member", skip_numbered_field)
    # Before napoleon, which reads the sections.
    app.connect("autodoc-process-docstring", field_lists.process, priority=400)
    here = Path(__file__).parent
    shutil.rmtree(here / "notebooks", ignore_errors=True)
    shutil.copytree(here.parent / "notebooks", here / "notebooks")
    for path in (here / "notebooks").glob("*.ipynb"):
        path.write_text(published.notebook(path.read_text("utf-8"), address), "utf-8")
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(formula("inline"), None),
        block_renderers=(formula("block"), None),
    )
