"""The papers' theorems as functions: bounds on errors, with what was mended in them.

- ``utility``: rates of the model-protected algorithms, the budgets and steps that achieve them.
- ``adaptation``: utility, stationarity and learning bounds of private domain adaptation.
- ``projection``: Lemmas 1 and 2, what noise in a second moment does to a proximal step.
- ``people``: lower and upper bounds of what can be learnt about many people before every view.
"""

from mpmtl_prob.theory import adaptation, people, projection, utility

__all__ = ["adaptation", "people", "projection", "utility"]
