"""The settings of `make docs`: Sphinx with myst-nb, the API from docstrings.

Notebooks are shown as they are stored, and never run here.

Formulas become MathML, which browsers draw by themselves: nothing is fetched for them.
"""

import shutil
from pathlib import Path

from docutils import nodes
from latex2mathml import converter

import specjax

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
default_role = "code"  # one backtick is code, as in the docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
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
    here = Path(__file__).parent
    shutil.rmtree(here / "notebooks", ignore_errors=True)
    shutil.copytree(here.parent / "notebooks", here / "notebooks")
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(formula("inline"), None),
        block_renderers=(formula("block"), None),
    )
