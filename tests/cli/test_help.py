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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            "message --study {0}/none.toml --out {0}/m",
            "--study: expected a file, got '{0}/none.toml', which is not there; ",
        ),
        (
            "predict --model {0}/none.nc --csv {0}/a.csv --out {0}/p",
            "--model: expected a file, got '{0}/none.nc', which is not",
        ),
        ("report --release {0}/words.txt --out {0}/p", "--release: '{0}/words.txt' holds no release of mpmtl_prob"),
        ("message --study {0} --out {0}/m", "--study: Is a directory: '{0}'"),
        (
            "message --study {0}/bytes.toml --out {0}/m",
            "--study: '{0}/bytes.toml' is no file of a study: expected text in",
        ),
        ("ledger {0}/words.txt", "ledger: cannot use '{0}/words.txt' as a ledger: file is not a database"),
        ("ledger {0}/empty", "ledger: expected a file that publish or release has charged, got '{0}/empty'"),
        ("audit noise --epsilon 1 --delta .1 --features 0", "--features: expected a whole number >= 1, got 0"),
        (
            "bounds people --epsilon 1 --delta .1 --features 2 --people 0",
            "--people: expected a whole number >= 1, got 0",
        ),
        (
            "schema --from {0}/a.csv --task a --target b --epsilon 0 --out {0}/s",
            "--epsilon: expected a positive number",
        ),
        ("schema --from {0}/a.csv --task a --target b --epsilon 1 --tasks 1 --out {0}/s", "--tasks: expected a whole"),
        ("federated sites --folder {0}/sites --nodes 0", "--nodes: expected 2 to 320, the number of tasks, got 0"),
        ("demo --out {0}/words.txt", "--out: File exists: '{0}/words.txt'"),
    ],
)
def test_an_error_names_the_option_that_was_typed(arguments, told, tmp_path, capsys):
    (tmp_path / "words.txt").write_text("words")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").touch()
    (tmp_path / "a.csv").write_text("a,b,c\nx,1,2\n")
    assert main(arguments.format(tmp_path).split()) == 2
    said = capsys.readouterr().err
    assert told.format(tmp_path) in said
    assert said.count("\n") == 1
    assert not (tmp_path / "s").exists()
