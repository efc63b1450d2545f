"""Who sees what, what it costs, and what it leaks: threat models of multi-task and metalearning on the plainest of problems.

t people have yes/no answers to d questions, and everybody wants to know how the population answers one of them. Whoever may
look decides how much noise there is: one other person, k of them, all, or everybody (a billboard, which newcomers read too).

- ``problems``: the answers, at scale; family A (means) and B (signs), and the priors that are hard.
- ``calibration``: (eps, delta) to noise, exactly, and by zero-concentrated privacy as in the paper.
- ``means``: one mechanism for all views; exact errors, people needed; what is published, through the door.
- ``plan``: how many people a wanted error needs, as a table and a picture.
- ``signs``: signs, classification, and the reductions between them.
- ``metalearning``: a billboard serves newcomers; the inequality that says how well.
- ``scores``: tracing scores, what accuracy forces them to be, and how much a promise allows.
- ``audits``: games against every mechanism and view, with controls that have to be caught.
- ``bounds``: the paper's table, with corrected constants.
- ``odds``: was this person in it? Bayes factors for somebody who does not know the others.
- ``posterior``: what each seat knows of p; the population's spread is learnt in :mod:`mpmtl_prob.models.rates`.

Views are those of :mod:`mpmtl_prob.privacy.audit.views`. Published noise comes through
:mod:`mpmtl_prob.privacy.charge_and_draw`; simulations are in doubles, and promise nothing.

Source: Aliakbarpour, Bairaktari, Smith, Swanberg and Ullman (2024), Privacy in Metalearning and Multitask Learning: Modeling
and Separations. What differs from it is said where it does.
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
