"""JAX is imported by whoever needs it, and by nobody else; what waits for it is done then."""

import subprocess
import sys

import pytest


def run(code):
    """Run code in a new process; return what it prints."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


_DATA = "import sys, numpy as np, mpmtl_prob as mp; tasks = mp.TaskData.from_lists([np.eye(2)], [np.ones(2)]); "


def test_tasks_need_no_jax_and_are_its_pytrees_all_the_same():
    code = _DATA + "print('jax' in sys.modules); import jax; print(len(jax.tree.leaves(tasks)))"
    assert run(code) == ["False", "3"]
    assert run("import jax; " + _DATA + "print(len(jax.tree.leaves(tasks)))") == ["3"]


def test_looking_for_jax_imports_nothing_and_loses_nothing():
    code = _DATA + "from importlib.util import find_spec; find_spec('jax'); print('jax' in sys.modules); import jax; "
    assert run(code + "print(len(jax.tree.leaves(tasks)))") == ["False", "3"]


def test_jax_that_something_else_loads_lazily_knows_tasks():
    code = _DATA + "import arviz_base, jax; print(len(jax.tree.leaves(tasks)))"
    assert run(code) == ["3"]


@pytest.mark.parametrize("first", ["", "import jax; "])
def test_the_command_line_computes_in_doubles(first):
    """With or without JAX imported before."""
    code = "from mpmtl_prob.cli import main; main(['ledger', '/nowhere/ledger.db']); import jax; "
    assert run(first + code + "print(jax.numpy.ones(1).dtype)")[-1] == "float64"
