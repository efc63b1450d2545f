"""Help and wrong options, as somebody meets them who types a command for the first time."""

import argparse
import subprocess
import sys

import pytest

from mpmtl_prob.cli import main, options
from mpmtl_prob.cli.main import _parser
from mpmtl_prob.data import reference

COMMANDS = next(each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction)).choices


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_with_its_default(name):
    for action in COMMANDS[name]._actions:
        said = action.help or ""
        assert said, action.dest
        if action.default not in (None, False, [], argparse.SUPPRESS):
            assert "default" in said, (action.dest, said)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_its_own_examples_alone(name):
    shown = [line.split()[1] for line in COMMANDS[name].epilog.splitlines()[1:]]
    assert set(shown) <= {name}
    assert shown or name in {"keys"}  # whose whole use is its two options


def test_help_needs_nothing_that_is_heavy():
    script = "import sys; from mpmtl_prob.cli.main import _parser; _parser().format_help(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert not {"jax", "numpyro", "xarray", "pandas", "scipy"} & set(ran.stdout.split())
    assert options.REFERENCE == reference.EXAMPLE_FILE


@pytest.mark.parametrize("arguments", [["bounds"], ["demo", "--epsilon", "x"], ["fit", "--nothing"], ["nothing"], []])
def test_a_wrong_option_is_told_in_one_line(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("mpmtl-prob")
    assert "--help lists what it takes" in said
