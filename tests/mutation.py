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
           "largest * _norms(W / np.where(largest > 0, largest, 1.0))", "largest",
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
    # What is read of private tables
    Mutant("durations are numbers", "_cells.py",
           '_NUMERIC = "biuf"', '_NUMERIC = "biufm"',
           "test_adaptation_poison.py::test_one_text_among_durations_changes_no_other_record"),
    Mutant("some units of durations are numbers", "_cells.py",
           "if isinstance(cell, np.datetime64 | np.timedelta64):", "if False:",
           "test_cells.py::test_durations_are_numbers_in_no_unit_and_no_container"),
    Mutant("a column is read at once where it can be", "_cells.py",
           "        return np.fromiter(map(as_number, column), dtype=np.float64)\n",
           "        try:\n            return np.asarray(column, dtype=np.float64)\n        except (TypeError, ValueError):\n"
           "            return np.fromiter(map(as_number, column), dtype=np.float64)\n",
           "test_adaptation_poison.py::test_one_text_among_durations_changes_no_other_record"),
    Mutant("a longer row is cut", "_cells.py",
           "        if len(row) == d:\n            record[:] = as_numbers(row)", "        record[:] = as_numbers(row)[:d]",
           "test_cells.py::test_a_row_of_another_length_is_one_record"),
    Mutant("a missing cell counts as what lies under its mask", "_cells.py",
           "if isinstance(column, np.ma.MaskedArray):", "if False:",
           "test_cells.py::test_a_masked_cell_is_missing"),
    Mutant("an error shows the first record in place of names", "adaptation/domain.py",
           "in this order, got others", "in this order, got {list(private.features)}",
           "test_adaptation_poison.py::test_no_error_shows_the_names_of_a_private_table"),
    Mutant("a task in two shards by two spellings", "shards.py",
           "count = Counter(label_text(task) for task in chain.from_iterable(part.tasks for part in self.parts))",
           "count = Counter(chain.from_iterable(part.tasks for part in self.parts))",
           "test_shards.py::test_a_task_is_in_one_file_however_it_is_spelled"),
    Mutant("files of two types of names", "shards.py",
           "return str(getattr(kind, \"value_type\", kind)).removeprefix(\"large_\")", 'return ""',
           "test_shards.py::test_a_task_is_in_one_file_however_it_is_spelled"),
    Mutant("a name that no file holds", "_cells.py",
           "if _UNWRITABLE.search(text):", "if False:",
           "test_cells.py::test_a_name_that_no_file_holds_is_refused"),
    Mutant("rows without targets are fitted to NaN", "tasks.py",
           "        if not self.has_targets:\n            raise", "        if False:\n            raise",
           "test_tasks.py::test_rows_without_targets_are_predicted_and_not_fitted"),
    Mutant("columns of tasks are mixed up", "_padded.py",
           "if len(named) > 1:", "if False:",
           "test_tasks.py::test_tables_give_their_names_to_tasks_and_features"),
    Mutant("starting values on their way to a device", "inference/sampling/chains.py",
           "compiled.init(every[i], params[i], for_chain(i, args))", "compiled.init(*for_chain(i, (every[i], params[i], args)))",
           "test_devices.py::test_numbers_do_not_depend_on_how_many_devices_there_are"),
    Mutant("a forked child computes", "_forks.py",
           "    if _threads_are_gone:\n", "    if False:\n",
           "test_forks.py::test_a_forked_child_says_so_and_does_not_hang"),
    Mutant("a fork is noticed when it is paid for", "inference/noise_aware.py",
           "        check_not_forked()\n", "",
           "test_forks.py::test_a_forked_child_says_so_and_does_not_hang"),
    Mutant("a site's error is shown to all", "federated/local.py",
           "refused[i] = type(error).__name__", "refused[i] = str(error)",
           "test_federated_release.py::test_a_site_that_fails_has_vanished"),
    Mutant("a plan is worse than no data", "threat_models/plan.py",
           "min(float(m.error(0.0)), _NOTHING_KNOWN)", "float(m.error(0.0))",
           "test_threat_plan.py::test_no_error_is_larger_than_of_answering_0"),
    Mutant("a task in two spellings", "_padded.py",
           '    check_labels("tasks", names)\n', "",
           "test_cells.py::test_a_fraction_is_no_name"),
    Mutant("a task in shards of two machines", "federated/scattered.py",
           "    _check_apart(names)\n", "",
           "test_federated_scattered.py::test_a_task_in_two_shards_is_refused"),
    Mutant("a message depends on how many others there are", "privacy/lattice.py",
           "    squares = np.zeros(W.shape[1])\n    for entries in W:\n        squares += entries * entries\n"
           "    return np.sqrt(squares)", "    return np.linalg.norm(W, axis=0)",
           "test_release.py::test_a_message_is_the_same_alone_and_among_others"),
    Mutant("a later round warns of one task's rows", "inference/owner/answers.py",
           'np.errstate(all="ignore")', 'np.errstate(all="warn")',
           "test_neighbours.py::test_a_later_message_warns_nobody_of_one_tasks_rows"),
    # Accounting
    Mutant("a Wishart replacement counts as a zeroing", "privacy/laws/wishart.py",
           "else replaced(zeroed)", "else zeroed",
           "test_replacement.py::test_one_release_is_the_bound_from_above"),
    Mutant("one replaced round counts as zeroed", "privacy/laws/wishart.py",
           "zeroed = Adjacency.of(adjacency) is Adjacency.ZERO_OUT", "zeroed = len(own) == 1",
           "test_replacement.py::test_one_release_is_the_bound_from_above"),
    Mutant("a replacement is two removals", "privacy/laws/loss_distributions.py",
           "PrivacyLossDistribution(remove.compose(add))", "PrivacyLossDistribution(remove.compose(remove))",
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
    Mutant("round-off is taken off delta", "privacy/accounting/composition.py",
           "ROUND_OFF = 1e-12", "ROUND_OFF = -1e-12",
           "test_composition.py::test_the_pessimistic_side_is_not_below_the_truth_even_where_delta_is_tiny"),
    Mutant("composition is optimistic", "privacy/accounting/composition.py",
           "interval=interval, pessimistic=pessimistic))", "interval=interval, pessimistic=False))",
           "test_replacement.py::test_one_release_is_the_bound_from_above"),
    Mutant("pure losses are rounded down", "privacy/laws/loss_distributions.py",
           "rounded, likely = (np.ceil if pessimistic else np.floor),", "rounded, likely = np.floor,",
           "test_composition.py::test_a_bought_quantile_costs_a_replacement_what_it_costs_a_zeroed_task"),
    Mutant("mass at infinity is forgotten", "privacy/laws/loss_distributions.py",
           "min(float(infinity_mass), 1 - 1e-15)", "0.0",
           "test_composition.py::test_one_round_on_the_grid_brackets_the_closed_form"),
    Mutant("rounds of one law count once", "privacy/accounting/composition.py",
           "return distribution.self_compose(times, tail if times > FEW_ROUNDS else 0.0)", "return distribution",
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
           "found = _recomputed(replace(stated, arithmetic=arithmetic), (*laws, *besides), unit)",
           "found = replace(stated, arithmetic=arithmetic)",
           "test_files.py::test_a_file_edited_to_promise_more_proves_nothing"),
    Mutant("a file may promise a little more", "releases/files.py",
           "found.proved.delta <= said.delta * (1 + _SLACK)", "found.proved.delta <= said.delta * 2",
           "test_files.py::test_a_file_edited_to_promise_more_proves_nothing"),
    Mutant("a file's purchases are not counted", "releases/files.py",
           "arithmetic=arithmetic), (*laws, *besides), unit)", "arithmetic=arithmetic), laws, unit)",
           "test_files.py::test_a_file_edited_to_promise_more_proves_nothing"),
    Mutant("a file's arithmetic is believed", "releases/files.py",
           "DOUBLES if said == DOUBLES or doubt else exact", "DOUBLES if said == DOUBLES else exact",
           "test_files.py::test_arithmetic_is_exact_only_on_the_lattice"),
    Mutant("a file's unit is believed", "releases/files.py",
           "if not unit.protects(Unit.of(said.unit)):", "if not (unit := Unit.of(said.unit)):",
           "test_files.py::test_who_is_protected_follows_from_the_kind"),
    Mutant("directions of any length", "releases/terms.py",
           'if message == "direction" and clips != [1.0]:', 'if message == "direction" and not clips:',
           "test_files.py::test_a_direction_has_length_1_in_a_file_too"),
    Mutant("every round its own clip norm", "releases/terms.py",
           "    if len(clips) > 1:\n", "    if len(clips) > len(mechanisms):\n",
           "test_terms.py::test_all_rounds_bound_messages_alike"),
    Mutant("a file's lattice is believed", "releases/files.py",
           "    if lattice != expected:\n", "    if not expected:\n",
           "test_files.py::test_the_lattice_follows_from_the_files_numbers"),
    Mutant("doubles of any size are exact", "releases/files.py",
           "(np.mod(sigma, lattice**2) == 0) & (np.abs(sigma) <= 2.0**53 * lattice**2)", "np.mod(sigma, lattice**2) == 0",
           "test_files.py::test_the_lattice_follows_from_the_files_numbers"),
    Mutant("shares on another lattice", "releases/files.py",
           "law.step != lattice**2 for law", "law.step < 0 for law",
           "test_files.py::test_shares_of_noise_are_on_the_lattice"),
    Mutant("a lattice as fine as doubles", "releases/terms.py",
           "if terms.lattice < least or np.frexp", "if np.frexp",
           "test_terms.py::test_a_lattice_is_one_on_which_sums_are_exact"),
    Mutant("Gaussian noise on fewer numbers", "adaptation/files.py",
           "(law.num_features, law.clip) != (len(features) + 1, longest)", "law.clip != longest",
           "test_adaptation_files.py::test_the_noise_covers_records_of_the_files_size"),
    Mutant("Gaussian noise for shorter records", "adaptation/files.py",
           "(law.num_features, law.clip) != (len(features) + 1, longest)", "law.num_features != len(features) + 1",
           "test_adaptation_files.py::test_the_noise_covers_records_of_the_files_size"),
    Mutant("a signature under Sigma alone", "releases/signatures.py",
           "for name, variable in sorted(data.variables.items(), key=lambda item: str(item[0]))",
           'for name, variable in data.variables.items() if name == "sigma"',
           "test_adaptation_files.py::test_a_signature_covers_all_that_is_read"),
    Mutant("the first signature is enough", "releases/signatures.py",
           "if by_the_first and (beyond := _beyond_the_first(data)):", "if by_the_first and (beyond := []):",
           "test_files_of_0_3_0.py::test_a_moment_release_signed_by_0_3_0_is_refused"),
    Mutant("groups that nobody signed", "releases/files.py",
           "    if tree.children:", "    if tree.children is None:",
           "test_files.py::test_any_edit_of_a_signed_file_is_noticed"),
    Mutant("private files by the umask", "_files.py",
           "        if private:\n", "        if not path:\n",
           "test_files.py::test_private_files_are_their_owners_alone"),
    Mutant("owners' models for everybody", "inference/owner/posteriors.py",
           "write_netcdf(tree, path, private=True)", "write_netcdf(tree, path, private=False)",
           "test_files_of_0_3_0.py::test_owners_models_are_written_for_their_owner_alone"),
    Mutant("everybody's rows for everybody", "inference/curator/posterior.py",
           "write_netcdf(tree, path, private=True)", "write_netcdf(tree, path, private=False)",
           "test_fit.py::test_a_curators_files_are_its_own"),
    Mutant("checkpoints for everybody", "inference/sampling/checkpoint.py",
           "with whole(path, private=True)", "with whole(path, private=False)",
           "test_fit.py::test_a_curators_files_are_its_own"),
    Mutant("seeded releases for everybody", "releases/release.py",
           "private=self.guarantee.proved is None)", "private=False)",
           "test_files.py::test_a_release_is_public_only_if_it_is_proved"),
    Mutant("models of seeded releases for everybody", "adaptation/report.py",
           "private = self.release.guarantee.proved is None", "private = False",
           "test_adaptation_cli.py::test_a_model_of_which_nothing_is_proved_is_its_owners"),
    Mutant("moments protect a task", "adaptation/files.py",
           "unit=Unit.TARGET_RECORD,", "unit=Unit.TASK,",
           "test_adaptation_files.py::test_what_is_protected_is_a_record_whatever_a_file_says"),
    Mutant("a checkpoint's mark without a key", "inference/sampling/checkpoint.py",
           "return hmac.new(salt, run.encode(), hashlib.sha256).hexdigest()", "return run",
           "test_runs.py::test_marks_of_two_checkpoints_say_nothing_of_each_other"),
    Mutant("nothing shared, says a file", "inference/curator/posterior.py",
           "        if stated.proved is not None:", "        if stated.proved is not None and stated.proved.epsilon:",
           "test_fit.py::test_a_file_does_not_show_that_nothing_was_shared"),
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
           "test_ledger_file.py::test_the_file_is_closed_from_the_first_moment"),
    Mutant("a ledger takes an open file as it is", "privacy/ledger_file.py",
           "os.chmod(path, 0o600)", "pass",
           "test_ledger_file.py::test_a_file_that_was_not_made_here_is_closed_too"),
    Mutant("a ledger in use forgets what it saw", "privacy/ledger_file.py",
           "                check_receipt(self.seen, totals, chain.rows)\n", "",
           "test_ledger_file.py::test_a_ledger_in_use_refuses_what_took_its_files_place"),
    Mutant("a ledger's file is made anew where it is gone", "privacy/ledger_file.py",
           '_uri(path, "mode=rw")', '_uri(path, "mode=rwc")',
           "test_ledger_file.py::test_a_file_that_vanishes_just_then_is_not_made_anew"),
    Mutant("a relative path follows the process", "privacy/ledger_file.py",
           "text = os.path.abspath(os.fsdecode(path))", "text = os.fsdecode(path)",
           "test_ledger_file.py::test_a_relative_path_is_where_it_was_first"),
    Mutant("a pickled ledger is whatever lies at its path", "privacy/ledger.py",
           "    ledger.verify(receipt)\n", "",
           "test_ledger_file.py::test_a_ledger_in_use_refuses_what_took_its_files_place"),
    Mutant("a forked child has a ledger in memory of its own", "privacy/ledger_file.py",
           "if self._memory is not None and os.getpid() != self._process:", "if False:",
           "test_ledger_file.py::test_a_child_cannot_charge_a_ledger_in_memory"),
    Mutant("a fork waits for no charge", "privacy/ledger_file.py",
           'if hasattr(os, "register_at_fork"):', "if False:",
           "test_ledger_file.py::test_a_child_forked_amid_a_threads_charge_can_charge"),
    Mutant("a ledger moves into any data base", "privacy/ledger_file.py",
           "if held and not ours:", "if False:",
           "test_ledger_file.py::test_a_data_base_of_something_else_stays_as_it_is"),
    Mutant("a ledger repairs somebody's data base", "privacy/ledger_file.py",
           "                _look(self.path)\n", "                pass\n",
           "test_ledger_file.py::test_a_data_base_left_in_the_middle_of_a_write_stays_so"),
    Mutant("triggers in a ledger's file fire", "privacy/ledger_file.py",
           "SQLITE_DBCONFIG_ENABLE_TRIGGER, False)", "SQLITE_DBCONFIG_ENABLE_TRIGGER, True)",
           "test_ledger_file.py::test_a_trigger_in_the_file_takes_no_charge_back"),
    Mutant("an eps is searched for up to 10 000", "privacy/accounting/composition.py",
           "if high >= LARGEST_EPSILON:", "if high >= 1e4:",
           "test_ledger.py::test_what_was_let_through_is_spent_in_finite_numbers"),
    Mutant("a ledger pays more than it can count", "privacy/ledger.py",
           "countable = min(self.epsilon, composition.LARGEST_EPSILON)", "countable = self.epsilon",
           "test_ledger.py::test_what_costs_more_than_can_be_counted_is_refused"),
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
    Mutant("an audit of doubles for what is published", "privacy/audit/attempts.py",
           '({"exact": True} | options)', "options",
           "test_audit.py::test_a_sum_of_doubles_shows_what_was_added_and_one_on_the_lattice_does_not"),
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
           "self._masked.shares and not self._masked.confirmed", "self._masked.shares",
           "test_federated_signing.py::test_a_list_is_signed_once_and_by_as_many_as_have_to_be_in_the_sum"),
    Mutant("two lists find enough who vouch", "federated/conditions.py",
           "and 2 * agreed.least <= sites + colluders", "and sites < 0",
           "test_federated_signing.py::test_sites_insist_that_two_lists_cannot_both_find_enough"),
    Mutant("who colludes is not counted for lists", "federated/conditions.py",
           "colluders = max(self.colluders, *(", "colluders = max(0, *(",
           "test_federated_signing.py::test_sites_insist_that_two_lists_cannot_both_find_enough"),
    Mutant("two lists open both secrets of a site", "federated/thresholds.py",
           "return (owners + colluders) // 2 + 1", "return (owners + colluders) // 2",
           "test_federated_sum.py::test_no_two_lists_open_both_secrets_of_an_owner"),
    Mutant("a site believes in the threshold", "federated/conditions.py",
           "enough = 2 if signed else undivided(sites, colluders)", "enough = 2",
           "test_federated_trust.py::test_an_invitation_that_contradicts_itself_is_refused_by_every_site"),
    Mutant("an invitation with fewer sites than shares", "federated/invitation.py",
           "if least < agreed.threshold:", "if least < 2:",
           "test_federated_release.py::test_bad_arguments_are_named"),
    Mutant("a site reveals by a list for which nobody vouches", "federated/protocol.py",
           "if self.signer is not None or agreed.partners is None:", "if self.signer is not None:",
           "test_federated_tampering.py::test_a_server_that_lies_about_who_is_there_reads_no_less"),
    Mutant("any word vouches for a list", "federated/secure_sum.py",
           "return by in masked.words and hmac.compare_digest(_word(masked.words[by], by, said), word)", "return True",
           "test_federated_sum.py::test_a_word_vouches_for_one_list_to_one_partner"),
    Mutant("a word is whoever's", "federated/secure_sum.py",
           'hmac.digest(key, b"%d " % writer + said, "sha256")', 'hmac.digest(key, said, "sha256")',
           "test_federated_sum.py::test_a_word_vouches_for_one_list_to_one_partner"),
    Mutant("partners arrive of whom nothing was heard", "federated/secure_sum.py",
           "else there & set(masked.silent)", "else set()",
           "test_federated_tampering.py::test_letters_held_back_on_a_circle_make_no_small_sum"),
    Mutant("an account that others read", "federated/account.py",
           "os.O_RDWR | os.O_CREAT, 0o600", "os.O_RDWR | os.O_CREAT, 0o644",
           "test_federated_kept.py::test_what_a_site_writes_is_its_owners_alone"),
    Mutant("an account in another's place", "federated/account.py",
           "if _identity(connection) != self._identity:", "if False:",
           "test_federated_kept.py::test_an_account_in_anothers_place_is_refused"),
    Mutant("an account that follows its process's folder", "federated/account.py",
           "Path(path).absolute()", "Path(path)",
           "test_federated_kept.py::test_an_account_stays_where_it_was_opened"),
    Mutant("a server's key in a file that others read", "federated/certificates.py",
           "path.unlink(missing_ok=True)", "path.touch()",
           "test_federated_kept.py::test_a_key_takes_the_place_of_a_file_that_is_there"),
    Mutant("a node's log that others read", "federated/sites.py",
           "os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600", "os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644",
           "test_federated_kept.py::test_a_nodes_log_is_its_owners_alone"),
    Mutant("a seed of a node's is not told", "federated/flower.py",
           'options.get("unsafe_seed") is not None}', "False}",
           "test_federated_flower.py::test_noise_of_a_nodes_own_seed_guarantees_nothing"),
    Mutant("arrivals that nobody heard of", "federated/secure_sum.py",
           "there - set(masked.shares) if agreed.partners is None", "set() if agreed.partners is None",
           "test_federated_tampering.py::test_a_server_cannot_fill_the_list_of_arrivals_with_others_than_wrote"),
    Mutant("runs without a ledger are free", "federated/account.py",
           "if (seen or unpaid) and before", "if seen and before",
           "test_federated_release.py::test_without_a_ledger_every_run_counts"),
    Mutant("half of the partners open a mask", "federated/thresholds.py",
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
