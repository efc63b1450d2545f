"""What importing costs, as names of packages rather than seconds: heavy ones are imported by whoever needs them."""

import subprocess
import sys

import pytest

#: NetCDF and labelled arrays, tables, pictures, statistics, accounting: each a quarter of a second to two seconds.
HEAVY = {"arviz", "arviz_base", "arviz_stats", "dp_accounting", "h5netcdf", "h5py", "matplotlib", "pandas", "pooch",
         "scipy.io", "scipy.optimize", "scipy.stats", "sklearn", "xarray"}  # fmt: skip
SAMPLING = {"numpyro"}
DEVICES = {"jax"}


@pytest.mark.parametrize(
    ("asked", "stays_away"),
    [
        ("", HEAVY | SAMPLING | DEVICES),
        ("mp.TaskData, mp.release, mp.Release, mp.privacy", HEAVY | SAMPLING),
        ("*(getattr(mp, name) for name in mp.__all__),", HEAVY),
    ],
)
def test_heavy_packages_wait_until_they_are_needed(asked, stays_away):
    script = f"import sys, mpmtl_prob as mp; [{asked}]; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    imported = set(ran.stdout.split())
    assert "mpmtl_prob" in imported
    assert imported & stays_away == set()
