"""Comparison of draws with what a file keeps of them."""

import re

import numpy as np
from numpy.testing import assert_allclose


def same_but_for_rounding(loaded, saved):
    """Compare trees: draws may be off by 2^-24 of how far they are from their median, or of themselves, and nothing else."""
    assert [group.path for group in loaded.subtree] == [group.path for group in saved.subtree]
    for group in saved.subtree:
        other = loaded[group.path].dataset
        assert set(other.variables) == set(group.dataset.variables)
        for name, variable in group.dataset.variables.items():
            if variable.dims[:2] != ("chain", "draw") or variable.dtype != np.float64:
                assert other.variables[name].equals(variable), name
                continue
            assert other.variables[name].dims == variable.dims
            x, y = variable.values, other.variables[name].values
            size = np.where((x > 0).all(axis=(0, 1)), np.abs(x), np.abs(x - np.median(x, axis=(0, 1))))
            assert (np.abs(x - y) <= 2.0**-24 * size + 2.0**-52 * np.abs(x)).all(), name


def said_alike(one, other):
    """Check that two texts say the same, their numbers up to rounding.

    r-hat goes by ranks, also of distances from the median. Two draws that are equally far from it change places where a file
    rounds them.
    """
    number = r"\d+(?:\.\d+)?"
    assert re.sub(number, "#", one) == re.sub(number, "#", other)
    assert_allclose(
        *([float(each) for each in re.findall(number, text)] for text in (one, other)), rtol=0.02, atol=2e-3
    )
