"""Threat models of multi-task learning and metalearning on simple problems: views, noise, errors and attacks.

t people have yes/no answers to d questions, and each wants to know how the population answers one of them. The amount of
noise depends on the attackers: one other person, k of them, all of them, or everybody (a billboard, which newcomers read
too).

- ``problems``: answers of many people; family A (means) and B (signs), and hard priors.
- ``calibration``: noise for an (eps, delta), exactly, and by zero-concentrated privacy as in the paper.
- ``means``: one mechanism for all views, with exact errors, the number of people needed, and publication with exact noise.
- ``plan``: the number of people that an error needs, as a table and a picture.
- ``signs``: signs, classification, and the reductions between them.
- ``metalearning``: use of a billboard by newcomers, and a bound on their error.
- ``scores``: tracing scores for membership inference, with their bounds from accuracy and from privacy.
- ``audits``: attacks on every mechanism and view, with controls that an audit must refute.
- ``bounds``: the paper's table, with corrected constants.
- ``odds``: membership inference: Bayes factors for an attacker who does not know the other people's answers.
- ``posterior``: posterior of p for each seat; :mod:`mpmtl_prob.models.rates` learns the population's spread.

Views are those of :mod:`mpmtl_prob.privacy.audit.views`. Published noise comes from
:mod:`mpmtl_prob.privacy.charge_and_draw`. Simulations are in doubles and have no guarantee.

Source: Aliakbarpour, Bairaktari, Smith, Swanberg and Ullman (2024), Privacy in Metalearning and Multitask Learning: Modeling
and Separations. Differences from the paper are stated where they occur.
"""

from mpmtl_prob.privacy.audit import views
from mpmtl_prob.theory import people as bounds
from mpmtl_prob.threat_models import audits, odds, posterior, scores, signs
from mpmtl_prob.threat_models.calibration import epsilon_of, mu_within, rho_within
from mpmtl_prob.threat_models.means import NoisyMeans, Published, one_of_each, people_needed
from mpmtl_prob.threat_models.metalearning import (
    BillboardMeans,
    BillboardRelease,
    Metalearner,
    generalisation_gap,
    leave_out,
    metalearning_error,
    newcomers_error,
    to_metalearner,
)
from mpmtl_prob.threat_models.plan import Plan
from mpmtl_prob.threat_models.problems import HardPrior, People, Population, mean_loss, sign_loss

__all__ = [
    "BillboardMeans",
    "BillboardRelease",
    "HardPrior",
    "Metalearner",
    "NoisyMeans",
    "People",
    "Plan",
    "Population",
    "Published",
    "audits",
    "bounds",
    "epsilon_of",
    "generalisation_gap",
    "leave_out",
    "mean_loss",
    "metalearning_error",
    "mu_within",
    "newcomers_error",
    "odds",
    "one_of_each",
    "people_needed",
    "posterior",
    "rho_within",
    "scores",
    "sign_loss",
    "signs",
    "to_metalearner",
    "views",
]
