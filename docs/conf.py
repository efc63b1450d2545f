"""The documentation site: `make docs` builds it into docs/_build, with warnings as errors."""

import base64
import json
import re
from importlib import metadata
from pathlib import Path

# Pages may link to notebooks, and notebooks to each other and to pages: they need to stand among the pages.
_COPIES = Path(__file__).parent / "notebooks"
_COPIES.mkdir(exist_ok=True)
_NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
for _notebook in _NOTEBOOKS:
    (_COPIES / _notebook.name).write_text(_notebook.read_text().replace("](../docs/", "](../"))


def _pictures(notebook: Path) -> str:
    """A grid of all that a notebook draws, under the headings where it does."""
    page, heading, figures = "", "", []
    for cell in json.loads(notebook.read_text())["cells"]:
        for line in cell["source"] if cell["cell_type"] == "markdown" else ():
            heading = re.sub(r"^#+ *(\d+\.)? *", "", line).strip() if line.startswith("#") else heading
            page = page or heading
        for output in cell.get("outputs", ()):
            if png := output.get("data", {}).get("image/png"):
                name = f"{notebook.stem}_{len(figures)}.png"
                (_COPIES / name).write_bytes(base64.b64decode("".join(png)))
                figures.append(
                    f"```{{figure}} notebooks/{name}\n:target: notebooks/{notebook.stem}.html\n\n{heading}\n```"
                )
    title = f"## [{page}](notebooks/{notebook.name})"  # of a role the contents beside the page would show the target
    return "\n\n".join([title, ":::{container} gallery", *figures, ":::"]) if figures else ""


(_COPIES / "pictures.txt").write_text("\n\n".join(map(_pictures, _NOTEBOOKS)) + "\n")

project = "mpmtl_prob"
author = copyright = "The mpmtl_prob developers"
release = metadata.version("mpmtl-prob")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
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
