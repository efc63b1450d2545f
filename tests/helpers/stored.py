"""What a file keeps of draws."""

import numpy as np


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
