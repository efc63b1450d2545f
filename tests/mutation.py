"""Mutants: mistakes that would break a guarantee, each put into a copy of the package, where a test must notice it.

    python tests/mutation.py            all of them, in a few minutes
    python tests/mutation.py clip seed  those with one of the words in their names

A mutant that no test notices is an error, as is one whose text is no longer in the code. Tests skip what they cannot find,
so that the copy holds nothing but what is in the repository.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("mpmtl_prob", "tests", "docs", "pyproject.toml")
#: imported once, and shared by the processes of all mutants; the package itself every one imports anew
PRELOADED = ["arviz", "dp_accounting.pld.privacy_loss_distribution", "numpyro", "pytest", "scipy.stats"]


class Mutant(NamedTuple):
    """One mistake: in ``file``, ``old`` stands once and becomes ``new``; ``test`` must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = [
    # Randomness
    Mutant("system bits from a fixed stream", "privacy/laws/exact.py",
           "return secrets.token_bytes(last - first)", "return seeded(0)(number, first, last)",
           "test_exact.py::test_the_systems_bits_are_asked_for_once_each"),
    Mutant("system bits repeated from 16", "privacy/laws/exact.py",
           "secrets.token_bytes(last - first)", "(secrets.token_bytes(2) * last)[: last - first]",
           "test_exact.py::test_the_systems_bits_are_asked_for_once_each"),
    Mutant("a seed where there is none", "privacy/laws/exact.py",
           "return system if unsafe_seed is None else", "return seeded(0, *which) if unsafe_seed is None else",
           "test_exact.py::test_a_seed_gives_the_same_draw_and_other_rounds_another"),
    Mutant("one draw for all rounds", "privacy/door.py",
           "law.draw(step, exact.source(unsafe_seed, t)) for", "law.draw(step, exact.source(unsafe_seed, 0)) for",
           "test_doors.py::test_a_release_is_its_messages_and_the_laws_own_draws"),
    Mutant("one draw for all vectors", "privacy/door.py",
           "[law.draw(lattice, exact.source(unsafe_seed, t, i)) for i in range(vectors)]",
           "[law.draw(lattice, exact.source(unsafe_seed, t, 0))] * vectors",
           "test_vectors.py::test_the_door_draws_fresh_noise_for_every_vector_and_states_what_holds"),
    # The laws as they are drawn
    Mutant("Wishart noise x .95", "privacy/laws/wishart.py",
           "(arb(self.scale) / arb(unit))", "(0.95 * arb(self.scale) / arb(unit))",
           "test_doors.py::test_drawn_wishart_noise_has_the_scale_and_the_degrees_of_freedom_that_are_stated"),
    Mutant("Wishart degrees of freedom off by one", "privacy/laws/wishart.py",
           "draws.gamma((self.df - i) / 2)", "draws.gamma((self.df - i - 1) / 2)",
           "test_doors.py::test_drawn_wishart_noise_has_the_scale_and_the_degrees_of_freedom_that_are_stated"),
    Mutant("Gaussian diagonal without sqrt 2", "privacy/laws/gaussian.py",
           "arb(2).sqrt() * self.sd / arb(unit)", "arb(self.sd) / arb(unit)",
           "test_doors.py::test_drawn_gaussian_noise_has_the_variances_that_are_stated_on_and_off_the_diagonal"),
    Mutant("vector noise x .95 in the law", "privacy/laws/vectors.py",
           "draws.gamma(float(self.num_features)) * self.scale", "draws.gamma(float(self.num_features)) * 0.95 * self.scale",
           "test_doors.py::test_drawn_noise_on_vectors_has_the_size_that_is_stated"),
    Mutant("independent noise x .95 in the law", "privacy/laws/vectors.py",
           "(first - second) * self.scale", "(first - second) * 0.95 * self.scale",
           "test_doors.py::test_drawn_noise_on_vectors_has_the_size_that_is_stated"),
    Mutant("vector noise x .95 at the door", "privacy/door.py",
           "[law.draw(lattice,", "[0.95 * law.draw(lattice,",
           "test_doors.py::test_noise_on_vectors_is_the_laws_own_draws"),
    Mutant("noise halved at the door", "privacy/door.py",
           "law.draw(step, exact.source(unsafe_seed, t)) for", "law.draw(2 * step, exact.source(unsafe_seed, t)) / 2 for",
           "test_doors.py::test_a_release_is_its_messages_and_the_laws_own_draws"),
    Mutant("noise halved on its way to an algorithm", "releases/release.py",
           "sigma, private = run(noise)", "sigma, private = run(terms.lattice**2 * np.rint(noise / terms.lattice**2 / 2))",
           "test_doors.py::test_an_algorithm_adds_the_laws_own_draws_to_its_rounds"),
    Mutant("quantile: epsilon is not halved", "privacy/laws/exact.py",
           "arb(epsilon) / 2 * int(utility)", "arb(epsilon) * int(utility)",
           "test_exact.py::test_a_clip_norm_is_drawn_with_the_probabilities_of_the_exponential_mechanism"),
    Mutant("quantile: utilities x 20", "privacy/laws/quantile.py",
           "(-np.abs(count - rank)).tolist()", "(-20 * np.abs(count - rank)).tolist()",
           "test_exact.py::test_a_clip_norm_is_drawn_with_the_probabilities_of_the_exponential_mechanism"),
    Mutant("an open rounding is rounded all the same", "privacy/laws/exact.py",
           "    if found is None:\n        raise Undecided\n",
           "    if found is None:\n        return round(float(value.mid()))\n",
           "test_exact.py::test_an_interval_that_holds_two_roundings_is_not_rounded"),
    Mutant("vectors beyond the lattice are let out", "privacy/door.py",
           "if guarantee.proved and np.abs(noise).max() >= held:", "if False:",
           "test_vectors.py::test_noise_that_leaves_the_lattices_range_is_not_let_out"),
    # Messages
    Mutant("messages are not cut", "privacy/lattice.py",
           "return cut(clipped(W, bound(clip, h)), h)", "return clipped(W, bound(clip, h))",
           "test_exact.py::test_messages_on_the_lattice_are_close_and_never_longer_than_the_clip_norm"),
    Mutant("messages are rounded, not cut", "privacy/lattice.py",
           "xp.trunc(W / h) * h", "xp.round(W / h) * h",
           "test_exact.py::test_messages_on_the_lattice_are_close_and_never_longer_than_the_clip_norm"),
    Mutant("K is not cut to the lattice", "privacy/lattice.py",
           "return cut(clipped(W, bound(clip, h)), h)", "return cut(clipped(W, clip), h)",
           "test_doors.py::test_a_cut_message_is_not_longer_than_the_bound_on_the_lattice"),
    Mutant("clipping by the largest entry", "privacy/lattice.py",
           "largest * np.linalg.norm(W / np.where(largest > 0, largest, 1.0), axis=0)", "largest",
           "test_release.py::test_clipping_shortens_what_is_longer_and_nothing_else"),
    Mutant("directions keep their length", "releases/terms.py",
           "lattice.unit_columns(W) if self.message", "W if self.message",
           "test_release.py::test_directions_say_nothing_of_norms"),
    Mutant("answers are not cut", "releases/release.py",
           "W = settled.bounded(checked_answer(respond(so_far), W.shape))",
           "W = checked_answer(respond(so_far), W.shape)",
           "test_doors.py::test_a_release_is_its_messages_and_the_laws_own_draws"),
    Mutant("models of the rounds are not clipped", "estimators/framework.py",
           "W = clip_columns(carry.W, run.clip)", "W = carry.W",
           "test_mp_mtl.py::test_rounds_are_those_printed_in_the_papers"),
    # Accounting
    Mutant("a Wishart replacement counts as a zeroing", "privacy/laws/wishart.py",
           "else replaced(zeroed)", "else zeroed",
           "test_replacement.py::test_one_release_is_the_bound_from_above"),
    Mutant("one replaced round counts as zeroed", "privacy/laws/wishart.py",
           "zeroed = Adjacency.of(adjacency) is Adjacency.ZERO_OUT", "zeroed = len(own) == 1",
           "test_replacement.py::test_one_release_is_the_bound_from_above"),
    Mutant("a replacement is two removals", "privacy/laws/loss_distributions.py",
           "(start, absent, never) = cells(remove), cells(add)", "(start, absent, never) = cells(remove), cells(remove)",
           "test_replacement.py::test_one_release_is_the_bound_from_above"),
    Mutant("a Gaussian replacement counts as a zeroing", "privacy/laws/gaussian.py",
           "(1.0 if zeroed else np.sqrt(2))", "1.0",
           "test_accounting.py::test_gaussian_replacement_is_a_rotation_by_a_right_angle"),
    Mutant("a replaced vector counts as zeroed", "privacy/laws/vectors.py",
           "is Adjacency.REPLACE else 0.5)", "is Adjacency.REPLACE and False else 0.5)",
           "test_vectors.py::test_zeroing_is_half_a_replacement_and_mixtures_with_whole_tasks_are_counted"),
    Mutant("add and remove swapped", "privacy/accounting/composition.py",
           "return Profile(read(add), read(remove))", "return Profile(read(remove), read(add))",
           "test_composition.py::test_composition_agrees_with_monte_carlo"),
    Mutant("losses are not tilted", "privacy/accounting/convolution.py",
           "best = self._zero + int(np.argmin(exponents))", "best = self._zero",
           "test_composition.py::test_many_rounds_are_just_above_the_truth_however_small"),
    Mutant("windows leave out what matters", "privacy/accounting/convolution.py",
           "_OUTSIDE = float(np.exp(-46.0))", "_OUTSIDE = float(np.exp(-3.0))",
           "test_composition.py::test_many_rounds_are_just_above_the_truth_however_small"),
    Mutant("a delta that is too small for doubles is 0", "privacy/accounting/convolution.py",
           "float(np.nextafter(upper, np.inf))", "upper",
           "test_composition.py::test_delta_is_not_zero_below_the_largest_loss"),
    Mutant("closed forms are not rounded up", "privacy/laws/closed_forms.py",
           "while not arb(above) >= value:", "while False:",
           "test_accounting.py::test_a_probability_is_rounded_up_and_known_to_enough_bits"),
    Mutant("closed forms take noise to be a little larger", "privacy/laws/closed_forms.py",
           "ROUNDED = 2.0**-49", "ROUNDED = -(2.0**-49)",
           "test_accounting.py::test_no_closed_form_is_below_the_truth_by_a_last_digit"),
    Mutant("what rounding hides is not added", "privacy/accounting/convolution.py",
           "upper = chernoff * (max(value, 0.0) + error) * (1 + relative)", "upper = chernoff * value",
           "test_composition.py::test_equal_rounds_are_their_sums_one_by_one_and_not_below"),
    Mutant("noise of any size is composed", "privacy/accounting/composition.py",
           "except (ArithmeticError, MemoryError, ValueError):", "except StopIteration:",
           "test_composition.py::test_noise_of_any_size_has_a_delta_or_a_named_error"),
    Mutant("the cap is read off a coarse grid", "privacy/accounting/composition.py",
           "/ (2 * CELLS)", "/ 20",
           "test_curves.py::test_the_cap_is_passed_as_often_as_is_said"),
    Mutant("FLINT's precision is not put back", "privacy/laws/exact.py",
           "            ctx.prec = before\n", "            pass\n",
           "test_exact.py::test_flints_precision_is_put_back_even_after_an_error"),
    Mutant("threads share FLINT's precision", "privacy/laws/exact.py",
           "    with _one_at_a_time:", "    if True:",
           "test_exact.py::test_flints_precision_is_put_back_by_two_threads"),
    Mutant("composition is optimistic", "privacy/accounting/composition.py",
           "interval=step, pessimistic=pessimistic)", "interval=step, pessimistic=False)",
           "test_replacement.py::test_one_release_is_the_bound_from_above"),
    Mutant("pure losses are rounded down", "privacy/laws/loss_distributions.py",
           "rounded, likely = (np.ceil if pessimistic else np.floor),", "rounded, likely = np.floor,",
           "test_composition.py::test_a_bought_quantile_costs_a_replacement_what_it_costs_a_zeroed_task"),
    Mutant("mass at infinity is forgotten", "privacy/laws/loss_distributions.py",
           "min(float(infinity_mass), 1 - 1e-15)", "0.0",
           "test_composition.py::test_one_round_on_the_grid_brackets_the_closed_form"),
    Mutant("rounds of one law count once", "privacy/accounting/composition.py",
           "rounds.append((there, absent, times))", "rounds.append((there, absent, 1))",
           "test_composition.py::test_composition_agrees_with_monte_carlo"),
    Mutant("the filter counts equal charges once", "privacy/accounting/filters.py",
           "moments += times * price[1]", "moments += price[1]",
           "test_filters.py::test_for_gaussian_noise_it_is_the_renyi_filter"),
    Mutant("the filter forgets infinite losses", "privacy/accounting/filters.py",
           "above += times * price[0]", "above += 0 * price[0]",
           "test_filters.py::test_an_infinite_loss_is_paid_from_its_own_share_of_delta"),
    Mutant("a group is one task", "privacy/accounting/curves.py",
           "for _ in range(group - 1):", "for _ in range(0):",
           "test_curves.py::test_a_group_costs_no_less_than_its_members_with_one_vector_in_common"),
    Mutant("a group under Gaussian noise is one task", "privacy/accounting/curves.py",
           "mu * self.group", "mu",
           "test_curves.py::test_a_group_under_gaussian_noise_is_exact"),
    Mutant("the power against a group reads delta at the eps above", "privacy/accounting/curves.py",
           'found[np.searchsorted(at, epsilon, side="right") - 1]',
           'found[min(np.searchsorted(at, epsilon, side="right"), len(at) - 1)]',
           "test_curves.py::test_of_two_tasks_the_power_of_a_test_may_be_that_of_twice_the_eps"),
    Mutant("discrete noise has slack for one number", "privacy/laws/shares.py",
           "float(numbers * (2 * c2 / (24 * steps**2) + _BEYOND))", "float(2 * c2 / (24 * steps**2) + _BEYOND)",
           "test_shares.py::test_every_number_of_a_matrix_costs_its_slack"),
    Mutant("many rounds have the slack of one each", "privacy/laws/shares.py",
           'law._slack(max(mu, law.mu("replace")))', "law.slack",
           "test_shares.py::test_many_rounds_cost_the_slack_of_all_that_they_give_away"),
    Mutant("a discrepancy is exact to the last bit", "adaptation/discrepancy.py",
           "(1 / max(num_records, 1) + 4 * SLACK)", "(1 / max(num_records, 1))",
           "test_adaptation_discrepancy.py::test_the_price_covers_the_solver_and_the_grid"),
    # Calibration
    Mutant("calibration forgets what was bought", "privacy/accounting/calibration.py",
           "(*laws(shape, log_theta), *besides)", "laws(shape, log_theta)",
           "test_release.py::test_a_bought_clip_is_near_the_quantile_and_is_part_of_the_price"),
    Mutant("rounds are calibrated without what was bought", "estimators/mp_mtl.py",
           "adjacency=self.adjacency, besides=self._besides)", "adjacency=self.adjacency)",
           "test_doors.py::test_calibrated_rounds_with_a_bought_clip_norm_keep_their_promise"),
    Mutant("rows of tasks that share subjects are added up together", "estimators/mp_mtl.py",
           "smooth = self.loss.alone(tasks)", "smooth = self.loss.of(tasks)",
           "test_neighbours.py::test_so_it_is_where_tasks_share_subjects"),
    Mutant("an owner takes out another's message", "inference/owner/own_message.py",
           "shared.without(own[:, i])", "shared.without(own[:, 0])",
           "test_own_message.py::test_whatever_the_targets_are_other_tasks_rows_are_not_looked_at"),
    Mutant("a row moves its model by K, not 2 K", "estimators/mp_mtl.py",
           "VectorLaplace(tasks.num_features, eps, 2 * K)", "VectorLaplace(tasks.num_features, eps, K)",
           "test_framework.py::test_algorithm_5_has_two_budgets_for_two_units_in_two_ledgers"),
    # What is stated
    Mutant("the guarantee is for another adjacency", "privacy/guarantee.py",
           "true_delta = delta(epsilon, laws, adjacency)", 'true_delta = delta(epsilon, laws, "zero_out")',
           "test_release.py::test_the_default_release_keeps_its_promise"),
    Mutant("the guarantee forgets what was bought", "privacy/door.py",
           "(*rounds, *(purchase.law for purchase in besides)),", "rounds,",
           "test_release.py::test_a_bought_clip_is_near_the_quantile_and_is_part_of_the_price"),
    Mutant("a seeded release is proved", "privacy/guarantee.py",
           "    if seeded:\n", "    if seeded and False:\n",
           "test_release.py::test_two_releases_never_share_noise_and_a_seed_guarantees_nothing"),
    Mutant("a file is believed", "releases/files.py",
           "return _recomputed(_guarantee(meta, lattice, sigma), laws)", "return _guarantee(meta, lattice, sigma)",
           "test_files.py::test_a_file_edited_to_promise_more_proves_nothing"),
    Mutant("a file may promise a little more", "releases/files.py",
           "found.proved.delta <= said.delta * (1 + _SLACK)", "found.proved.delta <= said.delta * 2",
           "test_files.py::test_a_file_edited_to_promise_more_proves_nothing"),
    Mutant("a file's purchases are not counted", "releases/files.py",
           "lattice, sigma, (*laws, *besides))", "lattice, sigma, laws)",
           "test_files.py::test_a_file_edited_to_promise_more_proves_nothing"),
    Mutant("a file's arithmetic is believed", "releases/files.py",
           "stated if on_lattice else DOUBLES", "stated",
           "test_files.py::test_arithmetic_is_exact_only_on_the_lattice"),
    Mutant("steps read off the rows are proved", "estimators/mp_mtl.py",
           'START_SHARED if tied else "" if public or own else STEP_READ_OFF', '""',
           "test_framework.py::test_a_step_size_read_off_the_rows_proves_nothing"),
    Mutant("row counts read off are proved", "estimators/dp_aggr.py",
           'return NO_ROW_BOUNDS if self.rows is None else ""', 'return ""',
           "test_baselines.py::test_row_counts_that_were_read_off_prove_nothing_of_a_task"),
    Mutant("the bound on rows is not kept", "estimators/dp_aggr.py",
           "tuple(part[:most] for part", "tuple(part for part",
           "test_baselines.py::test_row_counts_that_were_read_off_prove_nothing_of_a_task"),
    # What one task lets others see
    Mutant("all tasks draw from one stream", "taskwise/conjugate.py",
           "enumerate(rng.spawn(len(self.n)))", "enumerate([rng] * len(self.n))",
           "test_neighbours.py::test_other_tasks_draws_are_equal_bit_for_bit_however_many_are_drawn"),
    Mutant("a task is computed on with its padding", "tasks.py",
           "dtype=np.float64)[real], np.asarray(self.y[i], dtype=np.float64)[real]",
           "dtype=np.float64), np.asarray(self.y[i], dtype=np.float64)",
           "test_neighbours.py::test_other_tasks_first_messages_are_equal_bit_for_bit"),
    # The ledger
    Mutant("a release is charged after its noise is drawn", "privacy/door.py",
           "    guarantee = _pay(rounds, epsilon, adjacency, unit, claimed, unsafe_seed, ledger, data, besides)\n"
           "    return np.stack([law.draw(step, exact.source(unsafe_seed, t)) for t, law in enumerate(rounds)]), guarantee\n",
           "    noise = np.stack([law.draw(step, exact.source(unsafe_seed, t)) for t, law in enumerate(rounds)])\n"
           "    return noise, _pay(rounds, epsilon, adjacency, unit, claimed, unsafe_seed, ledger, data, besides)\n",
           "test_doors.py::test_a_release_pays_before_it_touches_any_randomness"),
    Mutant("a clip norm is not paid for", "releases/messages.py",
           "paid = {} if ledger is None else", "paid = {} if ledger is None or True else",
           "test_doors.py::test_a_release_pays_before_it_touches_any_randomness"),
    Mutant("what was bought is not said", "privacy/door.py",
           "adjacency=adjacency, bought=besides)", "adjacency=adjacency)",
           "test_ledger_clips.py::test_a_clip_norm_that_nobody_paid_for_is_charged_with_the_rounds_and_once"),
    Mutant("what was bought is not compared with the total", "privacy/ledger.py",
           "(*(purchase.law for purchase in owed), *rounds)", "rounds",
           "test_ledger_clips.py::test_where_purchase_and_rounds_are_too_much_together_neither_is_charged"),
    Mutant("what was bought is not written", "privacy/ledger.py",
           "[*new, paid]", "[paid]",
           "test_ledger_clips.py::test_a_clip_norm_that_nobody_paid_for_is_charged_with_the_rounds_and_once"),
    Mutant("earlier charges do not count", "privacy/ledger.py",
           "self._exceeds((*before, *more))", "self._exceeds(more)",
           "test_ledger.py::test_rounds_are_reserved_at_once_or_paid_one_by_one_at_the_same_price"),
    Mutant("a ledger pays for seeded noise", "privacy/ledger.py",
           "if ledger is not None and unsafe_seed is not None:", "if False:",
           "test_ledger.py::test_what_is_not_proved_is_not_sold"),
    Mutant("a ledger pays for seeded shares", "privacy/door.py",
           "    check_ledger(ledger, unsafe_seed)\n    if ledger is not None:\n        ledger.charge(law",
           "    if ledger is not None:\n        ledger.charge(law",
           "test_doors.py::test_a_share_from_a_seed_is_not_sold"),
    Mutant("an adaptive ledger composes", "privacy/ledger.py",
           "return self._filtered(laws) > self.epsilon", "pass",
           "test_ledger.py::test_an_adaptive_ledger_refuses_by_the_filter_and_says_so"),
    Mutant("edited charges are not seen", "privacy/ledger_file.py",
           "if row.hash != before:", "if False:",
           "test_ledger_file.py::test_an_edited_ledger_is_refused_by_all_that_read_it"),
    Mutant("an older copy is not seen", "privacy/ledger_file.py",
           "if count > len(rows):", "if False and count > len(rows):",
           "test_ledger_file.py::test_an_older_copy_in_the_ledgers_place_is_seen_by_whoever_kept_a_receipt"),
    Mutant("a ledger is for everybody to read", "privacy/ledger_file.py",
           "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600", "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644",
           "test_ledger_file.py::test_the_file_and_its_journal_are_for_the_owner_alone"),
    # Audits
    Mutant("an audit that never fires", "privacy/audit/found.py",
           "return self.epsilon_lower > self.claim.epsilon", "return False",
           "test_audit.py::test_the_controls_fire"),
    Mutant("an audit that replaces a task by nothing", "privacy/audit/game.py",
           "if self.claim.adjacency == Adjacency.ZERO_OUT or self.d == 1:", "if True:",
           "test_audit.py::test_a_replacement_shows_more_than_a_zeroed_task_does"),
    Mutant("an audit that finds every double reachable", "privacy/audit/attempts.py",
           "return np.any([sigma == A + E for E in tried], axis=0)", "return np.ones(np.shape(sigma), dtype=bool)",
           "test_audit.py::test_a_sum_of_doubles_shows_what_was_added_and_one_on_the_lattice_does_not"),
    Mutant("an audit of doubles for what is published", "privacy/audit/game.py",
           "drawn = mechanism.sample if self.h is None else", "drawn = mechanism.sample if True else",
           "test_audit_published.py::test_half_the_noise_in_what_is_published_is_found"),
    Mutant("an audit of shares plays one Gaussian", "privacy/audit/game.py",
           "mechanism.honest, claim, **options)", 'mechanism.honest, claim, **(options | {"exact": False}))',
           "test_audit_published.py::test_shares_that_are_too_small_are_found"),
    Mutant("an audit of shares that nobody tells", "privacy/laws/shares.py",
           "owners=self.owners - self.colluders, colluders=0)", "colluders=0)",
           "test_audit_published.py::test_sound_shares_pass_and_those_who_collude_are_left_out"),
    Mutant("an audit of half a clip norm's price", "privacy/audit/game.py",
           "np.array([1.0, 2.0, 3.0, 4.0, 6.0])", "np.array([1.0, 6.0])",
           "test_audit_published.py::test_a_clip_norm_sold_at_twice_its_eps_is_found"),
    Mutant("an audit of a ledger that plays one charge", "privacy/audit/attempts.py",
           "for law in charge.mechanisms)", "for law in charge.mechanisms)[:1]",
           "test_audit.py::test_a_ledger_that_forgets_a_charge_is_found"),
    # Without a curator
    Mutant("owners that stay count as honest", "federated/invitation.py",
           "np.sqrt(least - colluders)", "np.sqrt(least)",
           "test_federated_release.py::test_the_promise_says_that_who_added_noise_knows_a_share_of_it"),
    Mutant("a site that gets no letter from a partner", "federated/protocol.py",
           "{j: reply[str(j)] for j in graph[i]}", "{j: reply[str(j)] for j in graph[i] if str(j) in reply}",
           "test_federated_tampering.py::test_a_site_that_leaves_out_a_letter_is_left_out"),
    Mutant("a site believes in the noise", "federated/conditions.py",
           "if not true <= delta * _ROUNDING", "if False",
           "test_federated_trust.py::test_an_invitation_that_contradicts_itself_is_refused_by_every_site"),
    Mutant("any signature will do", "federated/protocol.py",
           "if self.signer is not None and i != self.number", "if self.signer is not None and i < 0",
           "test_federated_signing.py::test_a_signature_is_for_one_site_one_run_and_its_terms"),
    Mutant("several lists are signed", "federated/protocol.py",
           "self._masked is not None and not self._masked.confirmed", "self._masked is not None",
           "test_federated_signing.py::test_a_list_is_signed_once_and_by_as_many_as_have_to_be_in_the_sum"),
    Mutant("two lists are signed by enough", "federated/conditions.py",
           "if 2 * invitation.agreed.least <= invitation.sites + colluders", "if invitation.sites < 0",
           "test_federated_signing.py::test_sites_that_sign_insist_that_two_lists_cannot_both_be_signed_by_enough"),
    Mutant("who colludes is not counted for lists", "federated/conditions.py",
           "colluders = max(self.colluders, *(", "colluders = max(0, *(",
           "test_federated_signing.py::test_sites_that_sign_insist_that_two_lists_cannot_both_be_signed_by_enough"),
    Mutant("arrivals that nobody heard of", "federated/secure_sum.py",
           "if agreed.partners is None and (strangers", "if False and (strangers",
           "test_federated_tampering.py::test_a_server_cannot_fill_the_list_of_arrivals_with_others_than_wrote"),
    Mutant("runs without a ledger are free", "federated/account.py",
           "if (seen or unpaid) and before", "if seen and before",
           "test_federated_release.py::test_without_a_ledger_every_run_counts"),
    Mutant("half of the partners open a mask", "federated/secure_sum.py",
           "return partners // 2 + 2 + colluders // 2", "return partners // 2 + 1 + colluders // 2",
           "test_federated_sum.py::test_whoever_vanishes_there_is_one_sum_or_none"),
    Mutant("one share less opens a secret", "federated/secure_sum.py",
           "for _ in range(threshold - 1))]", "for _ in range(max(threshold - 2, 0)))]",
           "test_federated_sum.py::test_shares_open_a_secret_and_fewer_say_nothing"),
    Mutant("any key opens a mask", "federated/secure_sum.py",
           "if _public(key) != adverts[i].masks:", "if False:",
           "test_federated_sum.py::test_shares_that_open_another_key_are_noticed"),
    Mutant("a signature is for any adjacency", "federated/invitation.py",
           '("epsilon", "adjacency", "num_tasks",', '("epsilon", "num_tasks",',
           "test_federated_signing.py::test_what_is_signed_tells_all_terms_apart"),
]  # fmt: skip


def main(words: list[str]) -> int:
    """Try the mutants; how many were not caught."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            ignored = shutil.ignore_patterns("__pycache__", "_build")
            shutil.copytree(source, copy / name, ignore=ignored) if source.is_dir() else shutil.copy(source, copy)
        if run(copy, sorted({mutant.test for mutant in chosen})) != 0:
            print("the tests do not pass without any mutant", file=sys.stderr)
            return 1
        width, survivors = max(len(mutant.name) for mutant in chosen), 0
        for mutant in chosen:
            verdict = tried(copy, mutant)
            survivors += verdict != "caught"
            print(f"{mutant.name:{width}}  {verdict}: {mutant.test}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return survivors


def tried(copy: Path, mutant: Mutant) -> str:
    """What became of a mutant: "caught", or why not."""
    path = copy / "mpmtl_prob" / mutant.file
    before = path.read_text()
    if (times := before.count(mutant.old)) != 1:
        return f"NOT TRIED, its text is {times} times in {mutant.file}"
    path.write_text(before.replace(mutant.old, mutant.new))
    try:
        status = run(copy, [mutant.test])
    finally:
        path.write_text(before)
    return {0: "SURVIVED", 1: "caught"}.get(status, f"NOT TRIED, pytest's exit status is {status}")


def run(copy: Path, tests: list[str]) -> int:
    """pytest's exit status, in a process of its own: 0 if all pass, 1 if one fails; others if they did not get there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_pytest, copy, tests).result()


def _pytest(copy: Path, tests: list[str]) -> int:
    import pytest

    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)  # for the processes that tests start
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True
    options = ["-x", "-q", "--tb=line", "--assert=plain", "-p", "no:xdist", "-p", "no:cacheprovider"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main([*options, *(f"tests/{test}" for test in tests)])
    if status and len(tests) > 1:
        print(said.getvalue(), file=sys.stderr)
    import mpmtl_prob

    assert Path(mpmtl_prob.__file__).is_relative_to(copy)  # not the package that is installed
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
