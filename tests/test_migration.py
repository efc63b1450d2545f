"""The table of names on the page about migration is true, row by row."""

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import adaptation, estimators, federated, inference, privacy, releases
from mpmtl_prob._moved import new_name

PAGE = (Path(__file__).parents[1] / "docs" / "migration.md").read_text(encoding="utf-8")
FILES = Path(__file__).with_name("files_of_0_3_0")
pytestmark = pytest.mark.filterwarnings(
    "ignore:mpmtl_prob.* now; the former name goes"
)  # of modules, whose rows are apart


def tables():
    """The rows of the page's first two tables, as pairs of cells."""
    rows_of_tables = re.findall(r"^\| 0\.3\.0 \| 0\.4\.0 \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [
        [tuple(cell.strip() for cell in line.strip("|\n").split(" | ")) for line in rows.splitlines()]
        for rows in rows_of_tables
    ]


NAMES, MODULES = tables()


def tasks():
    return mp.TaskData.from_lists([np.eye(2), np.ones((3, 2))], [[1.0, 2.0], [3.0, 4.0, 5.0]])


def law():
    return privacy.calibrate(1.0, 1e-3, num_features=2)


def shared():
    return inference.SharedPosterior.load(FILES / "shared_full.nc")


def owners(**former):
    """A call that says what its arguments are called now; that the rows have other features is found later."""
    with pytest.raises(ValueError, match="features"):
        inference.task_posteriors(tasks(), shared(), **former)


def class_of(base, **methods):
    return type("OfAUser", (base,), {name: lambda self, *arguments: None for name in methods} | {"name": "mine"})


#: What a user of 0.3.0 wrote, by the row of the page.
WRITTEN = {
    "`privacy.Law`, `privacy.MatrixNoise`, `privacy.VectorNoise`": [
        lambda: privacy.Law, lambda: privacy.MatrixNoise, lambda: privacy.VectorNoise
    ],
    "`together`, `pure`, `against`, `reason`, `fluctuation` of a law": [
        lambda: law().together, lambda: law().pure, lambda: law().against, lambda: law().reason, lambda: law().fluctuation
    ],
    "`against` of a guarantee": [lambda: mp.release(tasks(), 1.0).guarantee.against],
    "`privacy.delta`, `privacy.epsilon`": [lambda: privacy.delta, lambda: privacy.epsilon],
    "`privacy.Curve`, `privacy.laws.Profile`": [
        lambda: privacy.Curve([law()], "replace", 1), lambda: import_module("mpmtl_prob.privacy.laws").Profile
    ],
    "`calibrate(besides=)`, `Release.besides`": [
        lambda: privacy.calibrate(2.0, 1e-3, 2, besides=[privacy.VectorLaplace(2, 1.0, 1.0)]),
        lambda: mp.release(tasks(), 1.0).besides,
    ],
    "`draw_vectors(besides=)`, `Ledger.charge(bought=)`, `Terms.bought`": [
        lambda: privacy.draw_vectors(np.zeros((2, 3)), [], epsilon=1.0, lattice=1.0, besides=()),
        lambda: privacy.Ledger(epsilon=5.0, delta=0.01, adjacency="replace").charge([law()], bought=()),
        lambda: releases.terms(1.0, 4, 2).bought,
    ],
    "`releases.buy_clip`, `releases.BoughtClip`": [lambda: releases.buy_clip, lambda: releases.BoughtClip],
    "`privacy.release`, `privacy.Release`, `privacy.buy_clip`, `privacy.BoughtClip`, `privacy.default_delta`": [
        lambda: privacy.release, lambda: privacy.Release, lambda: privacy.buy_clip, lambda: privacy.BoughtClip,
        lambda: privacy.default_delta,
    ],
    '`scaling="unit"`': [lambda: mp.release(tasks(), 1.0, scaling="unit"), lambda: mp.NoiseAware(scaling="unit")],
    "`TaskData.own(i)`": [lambda: tasks().own(1)],
    "`Prediction.away`": [lambda: mp.data.Prediction.away],
    "`task_posteriors(exclude_own=None)`, `True`, `False`": [
        lambda: owners(exclude_own=None), lambda: owners(exclude_own=True), lambda: owners(exclude_own=False)
    ],
    "`SharedPosterior.without`": [lambda: shared().without],
    "`sharpness` of `task_posteriors`, `SharedPosterior.shape` and `OneRelease`": [
        lambda: owners(sharpness=1.0), lambda: shared().shape(sharpness=1.0),
        lambda: adaptation.MomentAdaptation(sharpness=1.0), lambda: adaptation.MomentAdaptation().sharpness,
    ],
    "`inference.Until.reached`": [lambda: inference.Until(ess=100).reached(100, 2.0)],
    "`Structure.reading`, `Structure.given`, `Reading`": [
        lambda: inference.Structure.reading, lambda: inference.Structure.given,
        lambda: class_of(inference.Structure, reading=1), lambda: class_of(inference.Structure, given=1),
        lambda: import_module("mpmtl_prob.inference.public.structures").Reading,
    ],
    "`Likelihood.given`": [lambda: inference.Likelihood.given, lambda: class_of(inference.Likelihood, given=1)],
    "`estimators.Alone`, `estimators.Sharing`": [lambda: estimators.Alone, lambda: estimators.Sharing],
    "`adaptation.OneRelease`": [lambda: adaptation.OneRelease],
    "`federated.Account`, `federated.Conditions`": [lambda: federated.Account, lambda: federated.Conditions],
    "`Site(account=, conditions=)`, `Site.account`": [
        lambda: federated.Site(0, tasks(), account=None),
        lambda: federated.Site(0, tasks(), conditions=federated.SitePolicy()),
        lambda: federated.Site(0, tasks()).account,
    ],
}  # fmt: skip


def refusal(written):
    """The words in which a call of 0.3.0 is refused for what it lacks beside its former name; none where it works."""
    try:
        written()
    except (TypeError, ValueError) as refused:
        return str(refused)
    return ""


def test_every_row_of_names_is_tried():
    assert [former for former, _ in NAMES] == list(WRITTEN)


@pytest.mark.parametrize(("former", "today"), NAMES)
def test_a_former_name_of_the_page_warns_of_todays(former, today):
    for written in WRITTEN[former]:
        with pytest.warns(DeprecationWarning, match=r" from 0\.4 on; the former name goes with 0\.5") as warned:
            refused = refusal(written)
        assert "unexpected keyword" not in refused
        names = re.findall(r"is called ([\w.]+)", " ".join(str(each.message) for each in warned))
        assert any(name.rpartition(".")[2] in today for name in names), names


@pytest.mark.parametrize(("former", "today"), MODULES)
def test_a_module_of_the_page_has_moved_there(former, today):
    """Names after the first of a cell are of the same package, but of ``tasks, prediction`` of the whole one."""
    places = re.findall(r"`([\w.]+)`", former)
    package = places[0].removeprefix("mpmtl_prob.").rpartition(".")[0]
    for place in places:
        place = place.removeprefix("mpmtl_prob.")
        new = new_name(f"mpmtl_prob.{place if '.' in place or not package else f'{package}.{place}'}")
        if former == "modules of `adaptation`":
            assert new is None  # the package is where it was
        else:
            assert new is not None
            assert any(part in new for part in re.findall(r"`([\w.]+)`", today)), new
