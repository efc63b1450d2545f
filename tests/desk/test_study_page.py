"""The page of a study from start to end: its commands and examples run as they stand, in order, in an empty folder."""

import json
import os
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from test_docs import shape

import mpmtl_prob as mp
from mpmtl_prob.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "study.md"
#: Where the reader of the page is.
HOME = "/home/you"


def run_line(line, monkeypatch):
    """Run a line of a shell: a command of the package, or a change of folder."""
    program, *arguments = shlex.split(line)
    if program == "cd":
        monkeypatch.chdir(*arguments)
        return
    assert program == "mpmtl-prob"
    assert main(arguments) == 0, line


@pytest.mark.parametrize("page", [PAGE], ids=["study.md"])
def test_every_command_of_the_page_runs_and_prints_as_shown(page, tmp_path, monkeypatch, capsys):
    """Every command of the page runs, and what it prints is on the page."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(\w+)\n(.*?)```(?:\n\n```text\n(.*?)```)?", page.read_text(), flags=re.DOTALL)
    assert {kind for kind, *_ in blocks} == {"python", "sh", "toml"}
    assert sum(bool(shown) for *_, shown in blocks) == page.read_text().count("```text")
    scope = {"__name__": "page"}
    for kind, text, shown in blocks:
        capsys.readouterr()
        if kind == "toml":
            assert text == Path("study.toml").read_text()  # which is there already
        elif kind == "sh":
            for line in text.replace("\\\n", "").splitlines():
                run_line(line, monkeypatch)
        else:
            exec(compile(text, page.name, "exec"), scope)
        printed = capsys.readouterr().out.replace(str(tmp_path.resolve()), HOME).replace(os.fspath(tmp_path), HOME)
        assert not shown or shape(printed) == shape(shown)
    for folder in ("H01/results", "H31/results", "H01/readmitted"):
        results = {path.name for path in Path(folder).iterdir()}
        assert {"model.nc", "coefficients.csv", "average_effects.csv", "forest.png"} <= results
    hospital = pd.read_csv("H01/patients.csv", dtype=str)
    assert len(pd.read_csv("H01/predictions.csv")) == len(hospital)
    assert len(mp.privacy.Ledger("ledger.db").charges()) == 2
    # the noise is drawn anew every time: what is found is within six of its standard deviations of what is true
    truth = json.loads(Path("truth.json").read_text())
    for outcome, folder in (("stay", "H01/results"), ("readmitted", "H01/readmitted")):
        averages = pd.read_csv(f"{folder}/average_effects.csv", index_col="effect")
        far = (averages["mean"] - pd.Series(truth[outcome]["average"])) / averages["sd"]
        assert far.abs().max() < 6
        assert averages["sd"].max() < 1
