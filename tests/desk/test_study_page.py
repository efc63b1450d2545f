"""The page of a study from files: its commands and examples run as they stand, one after another, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest
from test_docs import shape

from mpmtl_prob.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "study.md"


@pytest.mark.parametrize("page", [PAGE], ids=["study.md"])
def test_every_command_of_the_page_runs_and_what_it_prints_is_on_the_page(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(\w+)\n(.*?)```(?:\n\n```text\n(.*?)```)?", page.read_text(), flags=re.DOTALL)
    assert {kind for kind, *_ in blocks} == {"python", "sh", "toml"}
    scope = {"__name__": "page"}
    for kind, text, shown in blocks:
        if kind == "toml":
            (tmp_path / "study.toml").write_text(text)
        elif kind == "sh":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "mpmtl-prob"
                assert main(arguments) == 0, line
        else:
            capsys.readouterr()
            exec(compile(text, page.name, "exec"), scope)
            assert not shown or shape(capsys.readouterr().out) == shape(shown)
    results = {path.name for path in (tmp_path / "H01" / "results").iterdir()}
    assert results == {"model.nc", "coefficients.csv", "average_effects.csv", "forest.png"}
    assert len((tmp_path / "H01" / "predictions.csv").read_text().splitlines()) == 41
