"""The examples on the documentation pages run as they stand."""

import re
from pathlib import Path

import pytest

from mpmtl_prob.experiments import page as results

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("tutorial.md", "with one release"),
        ("guide.md", "Nothing was charged"),
        ("estimators.md", "Hyper-parameters were chosen by cross-validation"),
    ],
)
def test_every_example_of_the_page_runs(page, printed, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert blocks
    scope = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page, "exec"), scope)
    assert printed in capsys.readouterr().out


def test_the_results_page_is_what_its_json_files_say():
    assert (DOCS / "results.md").read_text() == results.page(results.load(DOCS / "results"))
