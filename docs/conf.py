"""The documentation site: `make docs` builds it into docs/_build, with warnings as errors."""

import re
from importlib import metadata
from pathlib import Path

# Pages may link to notebooks, and notebooks to each other and to pages: they need to stand among the pages.
_COPIES = Path(__file__).parent / "notebooks"
_COPIES.mkdir(exist_ok=True)
for _notebook in (Path(__file__).parents[1] / "notebooks").glob("*.ipynb"):
    (_COPIES / _notebook.name).write_text(_notebook.read_text().replace("](../docs/", "](../"))

project = "mpmtl_prob"
author = copyright = "The mpmtl_prob developers"
release = metadata.version("mpmtl-prob")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "mpmtl_prob"

myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are committed with their outputs, and run by `make notebooks`

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

_LITERAL = re.compile(r"``.*?``|:\w+:`.*?`|`[^`]+`_?")


def _formulas_are_not_markup(app, what, name, obj, options, lines):
    """Docstrings write |W|_* and w_ij' as they are: escape what reStructuredText would read as markup."""
    for i, line in enumerate(lines):
        literals = _LITERAL.findall(line)
        plain = [re.sub(r"([*|])", r"\\\1", part) for part in _LITERAL.split(line)]
        plain = [re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", part) for part in plain]
        lines[i] = "".join(a + b for a, b in zip(plain, [*literals, ""], strict=True))


def setup(app):
    app.connect("autodoc-process-docstring", _formulas_are_not_markup, priority=400)  # before napoleon
