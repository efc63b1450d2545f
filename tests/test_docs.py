"""The examples on the documentation pages run as they stand."""

import csv
import doctest
import importlib.util
import itertools
import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import as_written
from helpers.effort import EVIDENCE

import mpmtl_prob as mp
from studies.papers import page as results

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def shape(text):
    """Words and layout of what is printed, whatever the numbers, and blanks at the ends of lines."""
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.sub(r"[ -]+", " ", re.sub(r"-?\d[\d.]*", "#", text)).strip()


every, sample, mixed = mp.evaluation.cross_validate, mp.inference.shared_covariance, mp.inference.shared_effects


def few_candidates(candidates, *more, **options):
    """Whatever is shown of what is chosen, two candidates of one round show it too."""
    return every(candidates[0:10:5], *more, **(options | {"folds": 3}))


def short_chains(*arguments, **options):
    """Whatever is shown of a posterior, the sampler that other tests compile shows it too."""
    return sample(*arguments, **(options | {"chains": 2, "warmup": 200, "draws": 50}))


def short_chains_of_effects(*arguments, **options):
    """The same of the posterior of a mixed model."""
    return mixed(*arguments, **(options | {"draws": 50}))


@pytest.mark.evidence  # and by `make docs`
@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("../README.md", "intercept"),
        ("tutorial.md", "with one release"),
        ("tutorial_people.md", "everybody: a billboard"),
        ("tutorial_adaptation.md", "one target record"),
        ("guide.md", "Nothing was charged"),
        ("random_effects.md", "The release says next to nothing of average effects"),
        ("coming_from.md", "meta-analysis"),
        ("threat_models.md", "any one other person"),
        # which domain the records resemble most is a matter of the data drawn
        pytest.param("adaptation.md", "one target record", marks=as_written),
        ("federated.md", "sites signed one list of arrivals"),
        ("estimators.md", "Hyper-parameters were chosen by cross-validation"),
    ],
)
def test_every_example_of_a_page_runs_and_prints_as_shown(page, printed, capsys, monkeypatch):
    """Every example of a page runs, and prints what the page shows."""
    text = (DOCS / page).read_text()
    if not EVIDENCE:
        # sizes of which other tests compile the same programs
        text = text.replace("num_features=12", "num_features=3")
        text = text.replace("num_tasks=40, num_features=6, rows=12,", "num_tasks=8, num_features=3, rows=8,")
        monkeypatch.setattr(mp.evaluation, "cross_validate", few_candidates)
        # a whole fit as long as others on the page
        whole = "mp.NoiseAware(3.0, reference=reference, "
        text = text.replace(f"{whole}progress_bar", f"{whole}chains=2, warmup=200, draws=100, progress_bar")
        monkeypatch.setattr(mp.inference, "shared_covariance", short_chains)
        monkeypatch.setattr(mp.inference, "shared_effects", short_chains_of_effects)
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, flags=re.DOTALL)
    assert blocks
    scope, everything = {"__name__": "page"}, ""
    for block, shown in blocks:
        exec(compile(block, page, "exec"), scope)
        output = capsys.readouterr().out
        everything += output
        assert not shown or shape(output) == shape(shown)
    assert printed in everything
    assert sum(bool(shown) for _, shown in blocks) == text.count("```text")


def test_users_of_statsmodels_find_its_average_effects():
    """With hardly any noise, on the table of the page that speaks to them: within one of its standard errors."""
    block = re.search(r"```python\n(.*?)```", (DOCS / "coming_from.md").read_text(), flags=re.DOTALL).group(1)
    scope = {"__name__": "page"}
    exec(
        compile(block.replace("(1000.0, 3.0)", "(1000.0,)").replace("print(", "str("), "coming_from.md", "exec"), scope
    )
    table = scope["table"]
    assert (np.abs(table["eps = 1000"] - table["statsmodels"]) < table["s.e."]).all()
    assert (table["sd, eps = 1000"] / table["s.e."]).between(0.5, 2).all()


EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "mpmtl_prob").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_print_what_they_say(module):
    run = doctest.testmod(
        importlib.import_module(module),
        extraglobs={"mp": mp, "np": np, "pd": pd},
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert run.attempted > 0
    assert run.failed == 0


def test_the_most_used_functions_have_an_example():
    shown = (mp, mp.release, mp.inference.shared_covariance, mp.inference.task_posteriors, mp.evaluation.nmse,
             mp.privacy.calibrate, mp.privacy.compute_delta, mp.privacy.compute_epsilon, mp.privacy.schedule,
             mp.privacy.Ledger)  # fmt: skip
    assert [thing.__name__ for thing in shown if ">>> " not in thing.__doc__] == []


def words(text):
    """Return the number of words, without the list of pages and what only draws a table."""
    text = re.sub(r"```{toctree}.*?```", "", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def test_the_results_pages_are_what_their_json_files_say():
    texts = results.pages(results.load(DOCS / "results"), DOCS / "results", DOCS / "results.md")
    assert {path: path.read_text() for path in texts} == texts
    assert set((DOCS / "results").glob("*.md")) == texts.keys() - {DOCS / "results.md"}


@pytest.mark.parametrize("name", ["results", "benchmarks"])
def test_an_overview_is_short_and_leads_to_every_page(name):
    overview = (DOCS / f"{name}.md").read_text()
    assert words(overview) <= 800
    assert "![" in overview
    for path in (DOCS / name).glob("*.md"):
        assert words(path.read_text()) <= 6000, path
        assert f"\n{name}/{path.stem}\n" in overview, path


def script(name):
    """Import a script of the documentation."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference():
    """Import the script that writes the API reference."""
    return script("make_reference")


def test_every_public_name_is_in_the_reference_once(reference):
    names = reference.documented()
    objects = {id(reference.get(name)): name for name in names}
    assert len(objects) == len(names)  # nothing twice, under other names either
    public = set(reference.public())
    assert {"TaskData", "privacy.audit.Audit", "federated.run", "extend.Penalty"} <= public
    assert {name for name in public if id(reference.get(name)) not in objects} == set()
    assert set(names) <= public


def test_the_reference_is_what_its_script_writes(reference):
    texts = reference.pages()
    written = {f"api/{path.relative_to(DOCS / 'api').as_posix()}" for path in (DOCS / "api").rglob("*.md")}
    assert written | {"reference.md"} == texts.keys()
    assert {name: (DOCS / name).read_text() for name in texts} == texts, "run python docs/make_reference.py"


def test_internals_have_no_public_object(reference):
    objects = {id(reference.get(name)) for name in reference.documented()}
    pages = {name: text for name, text in reference.pages().items() if name.startswith("api/internals/")}
    assert len(pages) > 10
    for text in pages.values():
        for block in re.findall(r"```{eval-rst}\n(.*?)```", text, flags=re.DOTALL):
            module = importlib.import_module(re.search(r"automodule:: (\S+)", block)[1])
            excluded = re.search(r":exclude-members: (.*)", block)
            left = dict(reference.members(module)) if ":no-members:" not in block else {}
            for name in excluded[1].split(", ") if excluded else ():
                left.pop(name, None)
            assert not objects & {id(thing) for thing in left.values()}, module.__name__


def test_every_picture_of_the_notebooks_has_a_caption():
    pictures = []
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        outputs = [output for cell in json.loads(notebook.read_text())["cells"] for output in cell.get("outputs", ())]
        drawn = sum("image/png" in output.get("data", {}) for output in outputs)
        pictures += [f"{notebook.stem}_{number}" for number in range(drawn)]
    with open(DOCS / "captions.csv", encoding="utf-8", newline="") as file:
        captions = {row["picture"]: row["caption"] for row in csv.DictReader(file)}
    assert list(captions) == pictures
    assert all(len(caption.split()) > 5 for caption in captions.values())


@pytest.fixture(scope="module")
def glossary():
    """Import the script that writes the glossary."""
    return script("make_glossary")


def test_the_glossary_is_what_its_table_says(glossary):
    assert (DOCS / "glossary.md").read_text() == glossary.page()
    terms = [row["term"] for row in glossary.terms()]
    assert len(set(terms)) == len(terms) > 40


def test_every_term_of_the_glossary_is_used_on_another_page(glossary):
    pages = [path.read_text() for path in DOCS.glob("*.md") if path.name != "glossary.md"]
    text = re.sub(r"\s+", " ", "\n".join(pages)).lower()
    unused = [
        row["term"] for row in glossary.terms() if not re.search(rf"\b{re.escape(row['term'].lower())}s?\b", text)
    ]
    assert unused == []


def test_the_table_of_licences_names_every_requirement():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {re.match(r"[\w-]+", each)[0] for each in asked} - {"mpmtl-prob"}
    text = (DOCS / "licences.md").read_text(encoding="utf-8")
    assert {name for name in names if f"| **{name}** |" not in text} == set()


def test_the_citation_has_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def prose(path):
    if path.suffix == ".md":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors(path):
    """Return the anchors that GitHub and MyST make of headings."""
    headings = re.findall(r"^#+ +(.*)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    for link in links:
        if re.match(r"\w+:", link):
            continue  # another site
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if page.parent == DOCS and name.startswith("notebooks/"):
            target = ROOT / name  # building the pages copies them there
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_workflows_match_the_makefile_and_promised_pythons():
    """Workflows call what the Makefile has, and try every Python that is promised."""
    flows = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    called = set(re.findall(r"make (\w[\w-]*)", re.sub(r"#.*", "", flows)))
    for listed in re.findall(r"target: \[(.*?)\]", flows):
        called |= set(listed.split(", "))
    targets = re.findall(r"^([\w%-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    missing = {name for name in called if not any(fnmatch(name, target.replace("%", "*")) for target in targets)}
    assert len(called) > 7
    assert not missing
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(promised) <= set(re.findall(r'python: "(3\.\d+)"', flows))
