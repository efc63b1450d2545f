"""Write docs/licences.md: the licence of every package that comes with the library or one of its extras.

    python docs/make_licences.py

Read off the metadata of what is installed, from the library's own downwards; an extra that is not installed is left out. That
the page names every requirement is tested.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PAGE = Path(__file__).with_name("licences.md")
HEAD = """# Licences

The library is under Apache-2.0. What it is installed with, and under which licence, as the packages themselves say
(`python docs/make_licences.py`). **Bold** is what the library asks for by name; the rest comes with that. None of it is
shipped in the wheel.

| package | licence | comes |
|---|---|---|
"""
EXTRAS = ("", "plots", "data", "shards", "federated", "flower", "notebooks", "docs", "bench", "flights", "dev")
#: SPDX names of what packages write in words
NAMES = {"apache": "Apache-2.0", "3-clause": "BSD-3-Clause", "2-clause": "BSD-2-Clause", "bsd": "BSD", "mozilla": "MPL-2.0",
         "python software": "PSF-2.0", "lesser": "LGPL", "isc": "ISC", "mit": "MIT"}  # fmt: skip


def licence(package: str) -> str:
    """What the package's metadata say, shortly: an expression, or else its classifiers, or else free text."""
    about = metadata.metadata(package)
    if expression := about.get("License-Expression"):
        return expression
    trove = [text.rsplit(" :: ", 1)[-1] for text in about.get_all("Classifier", []) if text.startswith("License ::")]
    named = [text for text in trove if text != "OSI Approved"] or [(about.get("License") or "?").partition("\n")[0]]
    short = (next((name for words, name in NAMES.items() if words in text.lower()), text) for text in named)
    return " or ".join(dict.fromkeys(short))


def wanted(package: str, extra: str = "") -> list[str]:
    """What a package asks for with an extra, and is installed here."""
    asked = (Requirement(text) for text in metadata.requires(package) or ())
    names = [r.name.lower().replace("_", "-") for r in asked if r.marker is None or r.marker.evaluate({"extra": extra})]
    return [name for name in names if name != "mpmtl-prob" and list(metadata.distributions(name=name))]


def page() -> str:
    comes: dict[str, str] = {}  # with which extra, by package
    named: set[str] = set()
    for extra in EXTRAS:
        named |= set(todo := wanted("mpmtl-prob", extra))
        while todo:
            if (package := todo.pop()) not in comes:
                comes[package] = f"with `{extra}`" if extra else "always"
                todo += wanted(package)
    order = sorted(comes, key=lambda package: (comes[package] != "always", comes[package], package))
    lines = (f"| {f'**{p}**' if p in named else p} | {licence(p)} | {comes[p]} |" for p in order)
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
