"""The examples on the documentation pages run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["estimators.md"])
def test_every_example_of_the_page_runs(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert blocks
    scope = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page, "exec"), scope)
    assert "proved:" in capsys.readouterr().out
