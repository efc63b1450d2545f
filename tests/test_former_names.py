"""Names of 0.3.0 work for one version, and say what they are called now."""

from importlib import import_module

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import adaptation, estimators, federated, inference, privacy, releases
from mpmtl_prob.federated.flower.persistent_site import PersistentSite
from mpmtl_prob.inference.owner.likelihoods import StudentTErrors
from mpmtl_prob.inference.public.structures import ModelAndInit
from mpmtl_prob.models import noise
from mpmtl_prob.privacy import mechanisms
from mpmtl_prob.privacy.accounting import curves
from mpmtl_prob.releases.publish import publish_rounds
from mpmtl_prob.sampling.extent import raise_on_interrupt

FORMER = [
    (privacy, "Law", "Mechanism"),
    (privacy, "MatrixNoise", "MatrixMechanism"),
    (privacy, "VectorNoise", "VectorMechanism"),
    (privacy, "Curve", "compute_profile"),
    (privacy, "delta", "compute_delta"),
    (privacy, "epsilon", "compute_epsilon"),
    (mechanisms, "Profile", "PrivacyProfile"),
    (mechanisms, "read_law", "read_mechanism"),
    (curves, "Curve", "compute_profile"),
    (releases, "BoughtClip", "PrivateClipNorm"),
    (releases, "buy_clip", "private_clip_norm"),
    (estimators, "Alone", "LocalGradientDescent"),
    (estimators, "Sharing", "SharingRule"),
    (adaptation, "OneRelease", "MomentAdaptation"),
    (federated, "Account", "RunLog"),
    (federated, "Conditions", "SitePolicy"),
]


@pytest.mark.parametrize(("module", "former", "name"), FORMER)
def test_a_former_name_is_todays_thing(module, former, name):
    with pytest.warns(DeprecationWarning, match=rf"\.{former} is called {module.__name__}\.{name} from 0\.4 on"):
        assert getattr(module, former) is getattr(module, name)
    assert former not in getattr(module, "__all__", ())


#: Names in modules that the documentation of 0.3.0 listed, by the former path of the module.
IN_MODULES = [
    ("privacy.laws.law", "Law", privacy.Mechanism),
    ("privacy.laws.profile", "Profile", privacy.PrivacyProfile),
    ("privacy.accounting.composition", "delta", privacy.compute_delta),
    ("privacy", "Release", releases.Release),
    ("privacy", "release", releases.release),
    ("privacy", "buy_clip", releases.private_clip_norm),
    ("estimators.mp_mtl", "Alone", estimators.LocalGradientDescent),
    ("estimators.framework", "Sharing", estimators.SharingRule),
    ("adaptation.one_release", "OneRelease", adaptation.MomentAdaptation),
    ("federated.account", "Account", federated.RunLog),
    ("federated.conditions", "Conditions", federated.SitePolicy),
    ("federated.kept", "KeptSite", PersistentSite),
    ("inference.public.structures", "Reading", ModelAndInit),
    ("inference.owner.likelihoods", "HeavyTails", StudentTErrors),
    ("inference.sampling.runs", "uninterrupted", raise_on_interrupt),
    ("releases.messages", "buy_clip", releases.private_clip_norm),
    ("releases.release", "perturb", publish_rounds),
]


@pytest.mark.parametrize(("module", "former", "thing"), IN_MODULES)
@pytest.mark.filterwarnings("ignore:mpmtl_prob.* now; the former name goes")  # of the module, in tests of its own
def test_a_former_name_in_a_documented_module(module, former, thing):
    documented = import_module(f"mpmtl_prob.{module}")
    with pytest.warns(DeprecationWarning, match=rf"\.{former} is called mpmtl_prob\.[\w.]+ from 0\.4 on"):
        assert getattr(documented, former) is thing


def test_a_law_written_for_0_3_0_is_one_of_today():
    """Its methods have their former names; before, composition would have read the largest loss of the base class."""
    with pytest.warns(DeprecationWarning, match=r"Fair\.\w+ is called Fair\.\w+ from 0\.4 on") as warned:

        class Fair(privacy.Mechanism):
            loss_spread = 1.0

            def pure(self, adjacency):
                return 0.25

            def reason(self, adjacency, rounds):
                return "A coin."

            def loss_distribution(self, adjacency, *, interval=None, pessimistic=True):
                raise NotImplementedError

    said = {str(each.message).split(" is called ")[0] for each in warned}
    assert said == {"Fair.pure", "Fair.reason"}
    assert all(each.filename == __file__ for each in warned)
    assert Fair().max_loss("replace") == 0.25
    assert Fair().justification("replace", 1) == "A coin."
    with pytest.warns(DeprecationWarning, match=r"Alike\.reading is called Alike\.model_for"):

        class Alike(inference.Structure):
            def reading(self, release):
                return "a model"

    assert Alike().model_for(None) == "a model"
    with pytest.warns(DeprecationWarning, match=r"Loud\.given is called Loud\.sampling_distribution"):

        class Loud(noise.GaussianNoise):
            def given(self, A):
                return "a law"

    assert Loud.sampling_distribution is Loud.given  # and not that of Gaussian noise, without a word


def test_names_that_never_were_are_attribute_errors():
    for module in {module for module, *_ in FORMER}:
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            module.nothing  # noqa: B018 # the look-up is what fails


@pytest.fixture(scope="module")
def tasks():
    return mp.TaskData.from_lists([np.eye(2), np.ones((3, 2))], [[1.0, 2.0], [3.0, 4.0, 5.0]])


def test_attributes_by_their_former_names(tasks):
    law = privacy.calibrate(1.0, 1e-3, num_features=2)
    pairs = [
        (law, "fluctuation", law.operator_norm),
        (law, "against", law.adversary),
        (mp.release(tasks, 1.0), "besides", ()),
        (releases.terms(1.0, 4, 2), "bought", ()),
        (federated.Site(0, tasks), "account", None),
    ]
    for owner, former, value in pairs:
        with pytest.warns(DeprecationWarning, match=rf"{type(owner).__name__}\.{former} is called"):
            attribute = getattr(owner, former)
        assert value is None or attribute == value
    with pytest.warns(DeprecationWarning, match=r"Until\.reached is called Until\.is_met"):
        assert inference.Until(ess=100).reached(100, 2.0)
    with pytest.warns(DeprecationWarning, match=r"TaskData\.own is called TaskData\.rows_of"):
        np.testing.assert_array_equal(tasks.own(1)[1], [3.0, 4.0, 5.0])


def test_arguments_by_their_former_names():
    law = privacy.VectorLaplace(2, 1.0, 1.0)
    with pytest.warns(DeprecationWarning, match="besides= is called composed_with="):
        former = privacy.calibrate(2.0, 1e-3, 2, besides=[law])
    assert former == privacy.calibrate(2.0, 1e-3, 2, composed_with=[law])
    with pytest.raises(TypeError, match="expected one of besides= and composed_with=, got both"):
        privacy.calibrate(2.0, 1e-3, 2, besides=[law], composed_with=[law])
    with pytest.warns(DeprecationWarning, match="besides= is called composed_with="):
        gaussian = privacy.calibrate_gaussian(2.0, 1e-3, 2, besides=[law])
    assert gaussian == privacy.calibrate_gaussian(2.0, 1e-3, 2, composed_with=[law])


def test_a_former_value_of_an_argument(tasks):
    with pytest.warns(DeprecationWarning, match="scaling='unit' is called scaling='unit_variance'"):
        assert mp.release(tasks, 1.0, scaling="unit").scaling == "unit_variance"
