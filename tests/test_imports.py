"""Cost of importing, in names of packages rather than seconds: heavy ones are imported by whoever needs them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

#: NetCDF and labelled arrays, tables, pictures, statistics, accounting: each a quarter of a second to two seconds.
HEAVY = {"arviz", "arviz_base", "arviz_stats", "dp_accounting", "h5netcdf", "h5py", "matplotlib", "pandas", "pooch",
         "scipy.io", "scipy.optimize", "scipy.stats", "sklearn", "xarray"}  # fmt: skip
SAMPLING = {"numpyro"}
DEVICES = {"jax"}


SCRIPT = """
import sys, mpmtl_prob as mp
print(*sys.modules)
mp.TaskData, mp.release, mp.Release, mp.privacy
print(*sys.modules)
[getattr(mp, name) for name in mp.__all__]
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def imported():
    """After each step of one process; a step asks for more than those before it."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    return [set(line.split()) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize(
    ("step", "stays_away"),
    [(0, HEAVY | SAMPLING | DEVICES), (1, HEAVY | SAMPLING), (2, HEAVY)],
    ids=["the package", "a release", "every name"],
)
def test_heavy_packages_wait_until_they_are_needed(imported, step, stays_away):
    assert "mpmtl_prob" in imported[step]
    assert imported[step] & stays_away == set()


@pytest.mark.parametrize(
    ("absent", "run", "extra"),
    [
        ("cryptography", "import mpmtl_prob.federated", "federated"),
        ("pyarrow", "import mpmtl_prob as mp; mp.TaskShards.from_parquet('.', task='a', target='b')", "shards"),
    ],
)
def test_missing_packages_are_named_with_their_extra(absent, run, extra):
    """A package that is not installed is named with the extra that brings it."""
    hidden = f"import sys; sys.modules[{absent!r}] = None; {run}"
    ran = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert ran.stderr.endswith(f"pip install 'mpmtl-prob[{extra}]'\n")


PRIVACY = """
import sys, mpmtl_prob.privacy as privacy
ledger = privacy.Ledger(epsilon=1.0, delta=1e-3)
law = privacy.calibrate(0.5, 1e-3, 3)
ledger.charge(law)
privacy.draw_vectors([privacy.VectorGaussian(3, 1.0, 1.0)], 2, epsilon=1.0, lattice=2.0**-30)
print(*sys.modules)
"""


def test_the_accountant_needs_neither_jax_nor_data_of_tasks():
    ran = subprocess.run([sys.executable, "-c", PRIVACY], check=True, capture_output=True, text=True)
    loaded = set(ran.stdout.split())
    assert "mpmtl_prob.privacy.charge_and_draw" in loaded
    assert loaded & (SAMPLING | DEVICES | {"pandas", "xarray"}) == set()
    ours = {name for name in loaded if name.startswith("mpmtl_prob.")}
    assert {name.split(".")[1] for name in ours} == {"privacy", "_util", "_moved"}


def test_nothing_is_imported_through_the_links_at_the_top_level():
    """A clone without links, as on Windows, has no `models` and `inference` beside the package."""
    root = Path(__file__).parents[1]
    for folder in ("mpmtl_prob", "studies", "apps", "tests"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                assert not {name.split(".")[0] for name in modules} & {"models", "inference"}, path


ANSWER = """
import sys
import numpy as np, mpmtl_prob as mp
from mpmtl_prob.inference.owner.effects import effect_posteriors

rng = np.random.default_rng(0)
X = [rng.standard_normal((40, 6)) for _ in range(21)]
tasks = mp.TaskData.from_lists(X, [x.sum(axis=1) + rng.standard_normal(40) for x in X])
"""
PUBLISHED = """
reference = mp.Reference.standard(tasks.features)
mp.release(tasks.take(range(20)), 10.0, reference=reference, unsafe_seed=0).save(sys.argv[1])
"""
FITTED = """
shared = mp.inference.shared_effects(mp.Release.load(sys.argv[1]), sampler="weighted", draws=100)
for leave_one_out, own in (("not_in_release", [20]), ("exact", [0])):
    effect_posteriors(tasks.take(own), shared, leave_one_out=leave_one_out, draws=100).coefficients()
print(shared.sampler, *sys.modules)
"""


def test_the_first_answer_imports_no_more_than_it_needs(tmp_path):
    """A release that is read, the public posterior by weighted points, and an owner's, in the release or not in it."""

    def run(code):
        command = [sys.executable, "-c", ANSWER + code, str(tmp_path / "release.nc")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    run(PUBLISHED)
    sampler, *loaded = run(FITTED)
    assert sampler == "weighted"
    # ArviZ puts names for JAX and NumPyro there, and loads them later; nothing is compiled without JAX
    assert set(loaded) & {"jax._src", "numpyro.infer", "matplotlib", "dp_accounting", "scipy.stats"} == set()
