"""Page of all algorithms, definitions, bounds, data sets and figures of the papers, with the call that runs each.

``python -m studies.papers.contents`` writes docs/papers.md from contents.txt and stand_ins.json, which are in this folder.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mpmtl_prob._util.files import write_text

_HERE = Path(__file__).parent
SOURCE, STAND_INS = _HERE / "contents.txt", _HERE / "stand_ins.json"
PAGE = _HERE.parents[1] / "docs" / "papers.md"
_NONE = "-"

#: the papers, by the names of the table
PAPERS = {
    "MTL": "Liang et al. (TPAMI 2022), Model-Protected Multi-Task Learning, and its preprint",
    "Supplement": "the supplement of January 2018 to the same, with an earlier noise",
    "People": "Aliakbarpour, Bairaktari, Smith, Swanberg and Ullman (2024), Privacy in Metalearning and Multitask Learning",
    "Adaptation": "Bassily, Cortes, Mao and Mohri (2023), Differentially Private Domain Adaptation",
}
#: what the papers name and this library does not have, with the reason
LEFT_OUT = {
    "Noise on W'W with a scale for every task": "Algorithm 5 of the supplement scales it by the lengths of the models. "
    "Two data sets that differ in one task then get noise of two laws, where the proof takes one for both. And one task "
    "changes a whole row and column of W'W, where the proof changes one number of the diagonal. `privacy.PaperTaskWishart` "
    "has one scale for all tasks, and nothing is proved of it either",
    "Laplace noise on the matrix": "named as possible, without an algorithm; [Extending](extend.md) has it as an example",
    "Importance weighting, KLIEP": "both need a density ratio of features. KMM and DM are here as methods of that kind, and "
    "`adaptation.tilted` estimates such a ratio from a private release",
    "gapBoost": "a boosting of classifiers; the paper names it and does not run it",
    "Private discrepancy minimisation as published": "the paper compares with it and does not give its formulas; "
    "`adaptation.PrivateDiscrepancyMinimisation` is a stand-in from one private second moment",
    "Minibatch noisy SGD": "noisy gradients on all records stand in for it, with exact accounting",
    "Adult, German, Accent, CIFAR, SVHN, ImageNet, reviews": "not at hand and not shipped; digits stand in for classes",
    "Sampling with replacement": "records are drawn without it everywhere",
    "A private source with a public target": "the source is public in all methods here",
    "Different feature spaces with a known map": "map the rows before the fit, as `adaptation.RandomFeatures` does",
    "alpha chosen privately from the discrepancy": "it is chosen on public records, in `mpmtl-prob reproduce adaptation`",
    "Unlabelled target records": "only KMM and discrepancy minimisation do without the target's labels",
}


class Entry(NamedTuple):
    """One line of the table.

    Attributes:
        paper: one of :data:`PAPERS`.
        item: what the paper calls it.
        what: what it is.
        python: a name below ``mpmtl_prob`` or ``studies``, with keyword arguments in brackets if any; "" for none.
        shell: a command line; "" for none.
        remark: a note, or the reason why there is none.
    """

    paper: str
    item: str
    what: str
    python: str
    shell: str
    remark: str


def entries(path: Path = SOURCE) -> list[Entry]:
    """Read the lines of the table. Raises ValueError for a line of another form, or one that neither runs nor says why."""
    listed = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        cells = ["" if cell.strip() == _NONE else cell.strip() for cell in line.split(" | ")]
        if len(cells) != len(Entry._fields) or cells[0] not in PAPERS or not cells[1] or not cells[2]:
            raise ValueError(f"line {number}: expected six cells, the first one of {', '.join(PAPERS)}, got {line!r}")
        entry = Entry(*cells)
        if not entry.shell and not entry.remark:
            raise ValueError(f"line {number}: expected a command, or a remark why there is none, got {line!r}")
        listed.append(entry)
    return listed


def resolve(python: str) -> Any:
    """Return the object that a cell names. Raises ValueError if there is none, or if it lacks a keyword that the cell has."""
    name, _, rest = python.partition("(")
    parts = name.split(".")
    parts = parts if parts[0] == "studies" else ["mpmtl_prob", *parts]
    reached: Any = import_module(parts[0])
    for place, part in enumerate(parts[1:], 2):
        if not hasattr(reached, part):
            try:
                import_module(".".join(parts[:place]))
            except ModuleNotFoundError:
                raise ValueError(f"python: {'.'.join(parts[: place - 1])} has no {part!r}, of {python!r}") from None
        reached = getattr(reached, part)
    if rest:
        keywords = [pair.split("=")[0].strip() for pair in rest.rstrip(")").split(",")]
        if unknown := [key for key in keywords if key not in inspect.signature(reached).parameters]:
            raise ValueError(f"python: {name} has no argument {unknown[0]!r}")
    return reached


def text() -> str:
    """Return the page."""
    listed = entries()
    counts = Counter(entry.paper for entry in listed)
    reached = sum(bool(entry.shell) for entry in listed)
    called = sum(bool(entry.python) for entry in listed)
    lines = [
        "# The papers, line by line",
        "",
        f"Every algorithm, definition, bound, data set and figure of the papers, with the call that runs it: {len(listed)} "
        f"lines, of which {called} have a name in Python and {reached} a command. Names are below `mpmtl_prob`, or in "
        "`studies`, which stands beside the package in its repository. What is left out stands at the end, with the reason. "
        "[The papers' experiments](results.md) has what came out, and where the papers' claims do not hold.",
        "",
        "`python -m studies.papers.contents` writes this page; a test imports every name and parses every command.",
        "",
    ]
    for paper, source in PAPERS.items():
        lines += [f"## {paper}", "", f"{source}: {counts[paper]} lines.", ""]
        lines += ["| item | what it is | Python | shell | remark |", "|---|---|---|---|---|"]
        for entry in listed:
            if entry.paper == paper:
                python, shell = (f"`{cell}`" if cell else "" for cell in (entry.python, entry.shell))
                lines.append(f"| {entry.item} | {entry.what} | {python} | {shell} | {entry.remark} |")
        lines.append("")
    lines += ["## Claims on stand-ins", "", *_stand_ins(), ""]
    lines += [
        "## Left out",
        "",
        "| what | why |",
        "|---|---|",
        *(f"| {what} | {why} |" for what, why in LEFT_OUT.items()),
    ]
    return "\n".join(lines) + "\n"


def _stand_ins() -> list[str]:
    """Return the results of the claims whose own data cannot be shipped."""
    rows = json.loads(STAND_INS.read_text())
    table = ["| paper | claim | data | errors | verdict |", "|---|---|---|---|---|"]
    for row in rows:
        errors = ", ".join(f"{name} {value:.3f}" for name, value in row["errors"].items())
        verdict = "holds" if row["holds"] else "does not hold"
        table.append(f"| {row['item']} | {row['claim']} | {row['data']} | {errors} | **{verdict}** |")
    return [
        f"Claims of the adaptation paper on other data than its own, means of {rows[0]['seeds']} seeds with nothing tuned "
        "(`python -m studies.papers.stand_ins`). Errors are mean squared errors over the variance of test labels, or shares "
        "of wrong labels; a claim holds or fails by two standard errors of the paired difference.",
        "",
        *table,
    ]


if __name__ == "__main__":
    write_text(PAGE, text())
    print(f"written to {PAGE}")
