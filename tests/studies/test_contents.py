"""The table of all that the papers have: every name is imported, every command is parsed, and the page is the script's."""

import re
import shlex

import pytest

from mpmtl_prob.adaptation.arms import CLASSIFICATION, REGRESSION
from mpmtl_prob.adaptation.data.named import DATA
from mpmtl_prob.cli import audit, bounds, federated
from mpmtl_prob.cli.demo import DATA as DEMOS
from mpmtl_prob.cli.main import _parser
from mpmtl_prob.cli.reproduce import EXPERIMENTS
from mpmtl_prob.evaluation.named import ARMS
from studies.papers import contents, stand_ins

ENTRIES = contents.entries()
#: what argparse leaves to the commands, by option or position: (command, name) to the names that are known
KNOWN = {
    ("reproduce", "experiment"): EXPERIMENTS,
    ("bounds", "what"): bounds.WHAT,
    ("audit", "what"): audit.WHAT,
    ("federated", "what"): federated.WHAT,
    ("compare", "arms"): ARMS,
    ("adapt", "data"): DATA,
    ("demo", "data"): DEMOS,
}


def test_the_page_is_the_scripts():
    page = contents.PAGE.read_text()
    assert page == contents.text()
    assert all(
        page.count(f"| {claim.item} | {claim.text} | {data.text} |")
        for claim in stand_ins.CLAIMS
        for data in claim.data
    )


def test_every_name_is_there():
    for entry in ENTRIES:
        if entry.python:
            contents.resolve(entry.python)


def test_every_command_is_parsed_and_knows_the_names_in_it():
    for entry in ENTRIES:
        if not entry.shell:
            continue
        program, *words = shlex.split(entry.shell)
        assert program == "mpmtl-prob"
        options = _parser().parse_args(words)
        for (command, name), known in KNOWN.items():
            if options.name == command and (given := getattr(options, name)) is not None:
                assert set([given] if isinstance(given, str) else given) <= set(known), entry.shell
        if options.name == "adapt":
            kinds = CLASSIFICATION if DATA[options.data].classification else REGRESSION
            assert set(options.arms or ()) <= set(kinds), entry.shell
            assert options.not_private == any(not kinds[arm].private for arm in options.arms or ()), entry.shell


def test_every_number_of_a_paper_is_in_the_table():
    """Algorithms, theorems, figures and tables by number, as the papers have them."""
    said = {paper: " ".join(entry.item for entry in ENTRIES if entry.paper == paper) for paper in contents.PAPERS}
    numbers = {paper: set(re.findall(r"\b(?:[A-C]\.)?\d+(?:\.\d+)?\b", text)) for paper, text in said.items()}
    assert set(map(str, range(1, 11))) | {"11", "12"} <= numbers["MTL"]
    assert {"4.1", "4.2", "4.4", "4.5", "4.6", "4.7", "4.8", "5.7", "5.8", "5.9", "5.11"} <= numbers["People"]
    assert {"4.2", "4.3", "5.1", "5.2", "B.1", "1", "2", "3", "4", "5"} <= numbers["Adaptation"]


def test_what_runs_nowhere_says_why(tmp_path):
    for line, message in (
        ("MTL | Theorem 9 | a claim | - | - | -", "expected a command, or a remark why there is none"),
        ("MTL | Theorem 9 | a claim", "expected six cells"),
        ("Other | Theorem 9 | a claim | - | - | no", "expected six cells, the first one of MTL"),
    ):
        (tmp_path / "rows.txt").write_text(line)
        with pytest.raises(ValueError, match=message):
            contents.entries(tmp_path / "rows.txt")
    for name in ("estimators.LowRankest", "nothing.at.all", "adaptation.CnvxAdap(weight=1)"):
        with pytest.raises(ValueError, match="python: "):
            contents.resolve(name)


def test_a_stand_in_holds_or_fails_by_two_standard_errors():
    better, even = stand_ins.CLAIMS[1], stand_ins.CLAIMS[0]
    noise = [0.0, 0.1, -0.1, 0.05, -0.05]
    apart = lambda claim, by: {claim.first: [1 + by + each for each in noise], claim.second: [1.0] * 5}
    assert [stand_ins.holds(better, apart(better, by)) for by in (-0.2, -0.01, 0.2)] == [True, False, False]
    assert [stand_ins.holds(even, apart(even, by)) for by in (-0.2, 0.01, 0.2)] == [True, True, False]
    claim, data = stand_ins.CLAIMS[0], stand_ins.CLAIMS[0].data[0]
    errors = claim.arms(data.load(3), data.weight_bound, 3)
    assert set(errors) == {claim.first, claim.second}
    assert all(0 < error < 2 for error in errors.values())
