"""The documentation site: `make docs` builds it into docs/_build, with warnings as errors."""

import base64
import csv
import json
import re
from importlib import metadata
from pathlib import Path

from docutils import nodes
from sphinx.util.nodes import make_refnode

# Pages may link to notebooks, and notebooks to each other and to pages: they need to stand among the pages.
_COPIES = Path(__file__).parent / "notebooks"
_COPIES.mkdir(exist_ok=True)
_NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
for _notebook in _NOTEBOOKS:
    (_COPIES / _notebook.name).write_text(_notebook.read_text().replace("](../docs/", "](../"))


with open(Path(__file__).with_name("captions.csv"), encoding="utf-8", newline="") as _file:
    #: what to see in the pictures of the notebooks, by notebook and number
    _CAPTIONS = {row["picture"]: row["caption"] for row in csv.DictReader(_file)}


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
                options = f":target: notebooks/{notebook.stem}.html\n:alt: {json.dumps(heading)}"
                caption = _CAPTIONS[name.removesuffix(".png")]
                start = f"**{heading}{'' if heading.endswith('?') else '.'}**"
                figures.append(f"```{{figure}} notebooks/{name}\n{options}\n\n{start} {caption}\n```")
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
pygments_dark_style = "github-dark"

highlight_language = "none"  # what says no language is a formula, a command or a table
myst_heading_anchors = 3
suppress_warnings = ["ref.python"]  # a name that two modules define leads to neither
nb_execution_mode = "off"  # notebooks are committed with their outputs, and run by `make notebooks`

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # types stand in the signature

# What stands as it is: code, roles, links, and words between asterisks.
_MARKUP = re.compile(r"``.*?``|:\w+:`.*?`|`[^`]+`_?|(?<![\w*|)^])(\*{1,2})[A-Za-z][^*]*\1(?![\w*])")
_ITEM = re.compile(r" *([-*]|\d+\.|\.\.) ")
_as_written: dict[str, list[str]] = {}
_trees: dict[tuple, str] = {}


def _escaped(line: str) -> str:
    """A line of prose in which |W|_* and w_ij' are no markup, and "d." is no item of a list."""
    literals = [found[0] for found in _MARKUP.finditer(line)]
    plain = [re.sub(r"([*|])", r"\\\1", part) for part in _between(line)]
    plain = [re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", part) for part in plain]
    line = "".join(a + b for a, b in zip(plain, [*literals, ""], strict=True))
    return re.sub(r"(^ *|: )([A-Za-z]\.)$", r"\1\\\2", line)


def _between(line: str) -> list[str]:
    ends = [0, *(end for found in _MARKUP.finditer(line) for end in found.span()), len(line)]
    return [line[a:b] for a, b in zip(ends[::2], ends[1::2], strict=True)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _formulas_are_not_markup(app, what, name, obj, options, lines):
    """Docstrings write formulas as they are: escaped in a sentence, and literal where they are indented.

    Examples are left alone.
    """
    done, before, literal, example = [], "", None, False
    for line in lines:
        if not line.strip():
            example = False
            done.append(line)
            continue
        if literal is not None and _indent(line) <= literal:
            literal = None
        if literal is None and not example:
            example = line.lstrip().startswith(">>>")
            apart = done and not done[-1].strip() and _indent(line) > _indent(before)
            if apart and not example and not _ITEM.match(before) and not _ITEM.match(line):
                literal = _indent(before)
                if not before.endswith("::"):
                    done += [" " * literal + "::", ""]
        if literal is not None:
            line = re.sub(r":\w+:`~?([^`]+)`", r"\1", line)
        done.append(line if example or literal is not None else _escaped(line))
        before = line
    lines[:] = done
    _as_written[name] = done


_COLUMNS = re.compile(r"\S {3,}\S|-{10}")

_TYPES = {
    "numpy._typing._array_like.": "numpy.typing.",
    "jax.Array | numpy.ndarray | numpy.bool | numpy.number | bool | int | float | complex": "jax.typing.ArrayLike",
}


def _types_by_their_public_names(app, what, name, obj, options, signature, returned):
    """Numpy's types stand in private modules, and jax's are unions of what they are."""
    for private, public in _TYPES.items():
        signature, returned = (text and text.replace(private, public) for text in (signature, returned))
    return signature, returned


def _attributes_are_sentences(app, what, name, obj, options, lines):
    """After napoleon, which takes what stands before a colon for a type."""
    if what in ("attribute", "data", "property"):
        lines[:] = _as_written[name]


def _said_elsewhere(app, what, name, obj, skip, options):
    """A named tuple's fields stand under its attributes; a field whose default is dict would be called an alias of it."""
    field = type(obj).__name__ == "_tuplegetter"
    return True if field or (isinstance(obj, type) and obj.__module__ == "builtins") else None


def _public_place_of_an_internal_name(app, env, node, contnode):
    """Docstrings name objects by where they are defined, or by their last name; the reference has them by public place."""
    if node.get("refdomain") != "py":
        return None
    domain, last = env.get_domain("py"), node["reftarget"].rpartition(".")[2]
    places = [name for name, entry in domain.objects.items() if not entry.aliased and name.rpartition(".")[2] == last]
    if len(places) != 1 or node["reftype"] == "meth":
        return None
    entry = domain.objects[places[0]]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, places[0])


def _sources_that_are_there(app):
    """The list of sources has a page for every module but those that have no source, such as builtins."""
    modules = app.env._viewcode_modules
    for name in [name for name, entry in modules.items() if not entry]:
        del modules[name]
    return []


def _one_tree_a_folder(app, page, template, context, doctree):
    """Beside a page of source code the tree of contents is that of any other in its folder; resolving it takes long."""
    if doctree is None and (resolve := context.get("toctree")):

        def tree(**asked):
            key = page.rpartition("/")[0], *asked.items()
            if key not in _trees:
                _trees[key] = resolve(**asked)
            return _trees[key]

        context["toctree"] = tree


def _columns_stay_columns(app, document):
    """What is set in columns is scrolled on a narrow screen; sentences are wrapped there."""
    for block in document.findall(nodes.literal_block):
        if sum(bool(_COLUMNS.search(line)) for line in block.astext().splitlines()) > 1:
            block["classes"].append("columns")


def setup(app):
    app.connect("doctree-read", _columns_stay_columns)
    app.connect("html-page-context", _one_tree_a_folder, priority=400)  # before the theme asks for it
    app.connect("autodoc-process-docstring", _formulas_are_not_markup, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _attributes_are_sentences, priority=600)
    app.connect("autodoc-process-signature", _types_by_their_public_names)
    app.connect("autodoc-skip-member", _said_elsewhere)
    app.connect("missing-reference", _public_place_of_an_internal_name)
    app.connect("html-collect-pages", _sources_that_are_there, priority=400)  # before viewcode
