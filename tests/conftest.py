"""Settings of the test suite: it runs in float64, and what claims to work in float32 is tested there explicitly.

Most of the suite's time is compilation. A compiled sampler is kept on disk and found again where structure, noise, features
and warm-up are the same, so tests of a public posterior take three features, Wishart noise and 200 iterations of warm-up
unless there is a reason not to.

``MPMTL_TEST_SEED=7`` shifts every seed, of the tests and of what they test: all must pass whatever it is. Without it the
suite draws the same every time, Hypothesis's examples included, but for noise that comes from the system.

``MPMTL_EVIDENCE=1`` (`make test-evidence`, weekly) runs what is marked ``evidence`` too, and everything at full length.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest
from helpers.effort import EVIDENCE

from mpmtl_prob.privacy.mechanisms import exact
from mpmtl_prob.sampling import chains

jax.config.update("jax_enable_x64", True)
gc.set_threshold(20_000, 50, 100)  # tracing leaves a million objects that live on: visit them less often

SHIFT = int(os.environ.get("MPMTL_TEST_SEED", "0"))
#: Mark of tests that compare with what was drawn elsewhere, or by another process, from the seeds as they are written.
as_written = pytest.mark.skipif(SHIFT != 0, reason="compared with what is drawn from the seeds as they are written")
hypothesis.settings.register_profile("the same every time", derandomize=True)
if not SHIFT:
    hypothesis.settings.load_profile("the same every time")


def _shifted(make):
    """Wrap a maker of generators so that whole-number seeds, alone or in a list, are shifted."""

    def shifted(seed=None, *more, **options):
        if isinstance(seed, int | np.integer):
            seed = int(seed) + SHIFT
        elif isinstance(seed, list | tuple):
            seed = [*seed, SHIFT]
        return make(seed, *more, **options)

    return shifted


if SHIFT:
    np.random.default_rng = _shifted(np.random.default_rng)
    jax.random.key, jax.random.PRNGKey = _shifted(jax.random.key), _shifted(jax.random.PRNGKey)
    chains.keys = _shifted(chains.keys)
    seeded = exact.seeded
    exact.seeded = lambda *seed: seeded(*seed, SHIFT)


def pytest_collection_modifyitems(config, items):
    """Leave out long tests unless evidence is asked for, or one of them is named."""
    if EVIDENCE:
        return
    named = tuple(argument.partition("::")[2] for argument in config.args if "::" in argument)
    long = [
        item
        for item in items
        if item.get_closest_marker("evidence")
        and not any(item.nodeid.partition("::")[2].startswith(name) for name in named)
    ]
    items[:] = [item for item in items if item not in long]
    config.hook.pytest_deselected(items=long)


@pytest.fixture
def unspaced_figures(monkeypatch):
    """Make figures that leave no room for their words: that takes longer than to draw them."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setattr("matplotlib.figure.Figure", lambda figsize, layout: figure(figsize))


@pytest.fixture(autouse=True, scope="module")
def _few_programs() -> Iterator[None]:
    """Forget compiled programs, which are on disk, before they use up the memory maps that a process may have."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > 15_000:
        jax.clear_caches()
        gc.collect()
