"""Nothing is charged that is refused later because of an argument: every call with a ledger, with arguments that are none."""

import zlib

import numpy as np
import pytest
from helpers import charges
from helpers.charges import ELSEWHERE, Endless, doors, fault, tried, values, watched
from helpers.effort import EVIDENCE, effort

import mpmtl_prob as mp
from mpmtl_prob import adaptation, cli
from mpmtl_prob.inference import posterior_draws
from mpmtl_prob.privacy import Ledger
from mpmtl_prob.privacy.mechanisms import exact

DOORS = doors()
#: In every run of the tests, for every argument; beside them some that take turns.
ALWAYS = ("nan", "a word", "-1")
TURNS = effort(2, len(values()))
#: Accepted by no argument that means anything.
NONSENSE = ("nan", "a pair of words", "an object", "a generator", "a ragged list", "a class")
#: Arguments that take anything, or are not looked at by the call as it is walked.
FREE = {"data", "label", "progress_bar", "radius", "record", "claimed"}


def spoilt(name):
    """Arguments of a call, and what they are given."""
    labels = list(values())
    for argument in DOORS[name].often if not EVIDENCE and DOORS[name].often else DOORS[name].arguments:
        first = zlib.crc32(f"{name} {argument}".encode()) % len(labels)
        turns = [labels[(first + i) % len(labels)] for i in range(0 if DOORS[name].often else TURNS)]
        yield from ((argument, label) for label in dict.fromkeys([*ALWAYS, *turns]))


def test_every_call_that_takes_a_ledger_is_walked():
    walked = {name.partition(",")[0] for name in DOORS}
    assert charges.charging() - walked == ELSEWHERE.keys()


@pytest.mark.parametrize("name", [name for name in DOORS if DOORS[name].often is None or EVIDENCE])
def test_a_call_as_it_is_walked_pays_and_draws(name):
    outcome = tried(DOORS[name])
    assert outcome.error is None
    assert (
        outcome.drawn == bool(outcome.charges) == (name != "estimators.mp_mtl.LocalGradientDescent")
    )  # which publishes nothing


@pytest.mark.parametrize("name", DOORS)
def test_what_is_refused_is_not_paid_for(name):
    paid = []
    for argument, label in spoilt(name):
        outcome = tried(DOORS[name], **{argument: values()[label]})
        if fault(name, outcome, argument):
            paid.append(f"{argument} = {label}: {outcome}")
        assert str(charges.SECRET)[2:] not in str(outcome.error)
    assert paid == []


def step_size(kind, labels=False, **options):
    source, target = charges._domains(labels)
    return lambda ledger: kind(steps=4, ledger=ledger, **options).fit(source, target)


CASES = [
    (adaptation.CnvxAdap, "step_size", {}),
    (adaptation.CnvxAdap, "step_size", {"variant": "printed"}),
    (adaptation.NCnvxAdap, "step_size", {}),
    (adaptation.NCnvxAdap, "step_size", {"variant": "printed"}),
    (
        adaptation.NCnvxAdap,
        "seed",
        {"variant": "printed", "discrepancy": 0.1},
    ),  # which draws no candidates before it pays
    (adaptation.NoisyGradient, "step_size", {}),
]
LISTED = {
    f"{kind.__name__}({name}={value!r}, {more})": step_size(kind, kind is adaptation.NCnvxAdap, **{name: value}, **more)
    for kind, name, more in CASES
    for value in (-1, "a", np.nan, [1.0])
}


@pytest.mark.parametrize("case", LISTED)
def test_a_descent_settles_its_step_size_and_seed_first(case):
    book = Ledger(epsilon=10.0, delta=0.5, unit="target record")
    with watched() as drawn, pytest.raises(ValueError, match=r"^(step_size|seed): expected a"):
        LISTED[case](book)
    assert book.charges() == []
    assert drawn == []


def test_as_much_noise_as_nobody_can_hold_is_not_paid_for(monkeypatch):
    monkeypatch.setattr(exact, "source", lambda *_: pytest.fail("drawn"))
    for name, argument in (
        ("adaptation.paper.cnvx.CnvxAdap", "steps"),
        ("adaptation.moments.moment_adaptation.MomentAdaptation", "draws"),
        ("privacy.charge_and_draw.draw_vectors", "vectors"),
    ):
        outcome = tried(DOORS[name], **{argument: 10**13})
        assert isinstance(outcome.error, ValueError)
        assert not outcome.charges


def test_a_lattice_on_which_noise_has_no_room_is_not_paid_for(monkeypatch):
    monkeypatch.setattr(exact, "source", lambda *_: pytest.fail("drawn"))
    for lattice in (5e-324, 1e-30, 2.0**-40):
        outcome = tried(DOORS["privacy.charge_and_draw.draw_matrices"], lattice=lattice)
        assert str(outcome.error).startswith("lattice: ")
        assert not outcome.charges


NUMBERS = {
    "adaptation.moments.moment_adaptation.MomentAdaptation": (
        "shift_scale",
        "residual_bound",
        "row_bound",
        "target_bound",
        "power",
    ),
    "adaptation.paper.cnvx.CnvxAdap, printed": (
        "kappa_1",
        "kappa_2",
        "step_size",
        "row_bound",
        "weight_bound",
        "target_bound",
    ),
    "adaptation.moments.adassp.AdaSSP": ("row_bound", "target_bound"),
    "estimators.mp_mtl.LowRank": ("alpha", "q", "curvature", "clip"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_any_size_are_refused_before_or_do(name):
    """Whatever doubles cannot hold, or a posterior's arithmetic, is found out before it is paid for."""
    for argument in NUMBERS[name]:
        for power in effort((-300, -17, -3, 2, 17, 300), range(-300, 301, 4)):
            outcome = tried(DOORS[name], **{argument: 10.0**power})
            assert outcome.held, (argument, power, outcome)


def test_nonsense_is_accepted_by_no_argument_that_is_looked_at():
    accepted = []
    for name in ("adaptation.paper.cnvx.CnvxAdap", "estimators.dp_aggr.DPAggr", "estimators.mp_mtl.LowRank",
                 "releases.publish.release", "adaptation.moments.moment_adaptation.MomentAdaptation"):  # fmt: skip
        for argument in DOORS[name].arguments:
            tries = {} if argument in FREE else {label: values()[label] for label in NONSENSE}
            accepted += [
                (name, argument, label)
                for label, value in tries.items()
                if tried(DOORS[name], **{argument: value}).error is None
            ]
    assert accepted == [
        ("releases.publish.release", "respond", "a class")
    ]  # a class can be called; one round asks nobody


def test_who_cannot_answer_is_not_paid_for():
    tasks, book = charges._tasks(), Ledger(epsilon=10.0, delta=0.5)
    others = mp.TaskData.from_lists(list(tasks.X[:4]), list(tasks.y[:4]))
    with pytest.raises(
        ValueError, match=r"respond: expected one whose messages have shape \(2, 6\), got one for \(2, 4\)"
    ):
        mp.release(tasks, 1.0, rounds=2, respond=posterior_draws(others), ledger=book)
    with pytest.raises(ValueError, match="respond: expected a function from the release so far to the next messages"):
        mp.release(tasks, 1.0, rounds=2, respond=lambda: np.ones((2, 6)), ledger=book)
    assert book.charges() == []


@pytest.mark.parametrize(
    "answer", [np.ones((6, 2)), None, [[1.0], [1.0, 2.0]], {}, "W"], ids=lambda each: type(each).__name__
)
def test_an_answer_of_another_shape_loses_no_round_before_it(answer):
    """It is known when the rounds are paid for; a rehearsal would disturb functions that remember what they were asked."""
    asked, book = [], Ledger(epsilon=10.0, delta=0.5)

    def respond(so_far):
        asked.append(so_far)
        return answer

    with pytest.raises(ValueError, match=r"^respond: expected messages of shape \(2, 6\), got ") as caught:
        mp.release(charges._tasks(), 1.0, rounds=3, respond=respond, ledger=book)
    assert len(book.charges()) == len(asked) == 1
    assert np.array_equal(caught.value.release.sigma, asked[0].sigma)
    assert "not lost" in caught.value.__notes__[0]


def test_a_cell_that_is_no_number_silences_its_own_task():
    cells = np.ones((2, 6), dtype=object)
    plain = cells.astype(float)
    cells[1, 2], plain[:, 2] = "text", 0.0
    out = [
        mp.release(charges._tasks(), 1.0, rounds=2, respond=lambda _, each=each: each, unsafe_seed=1)
        for each in (cells, plain)
    ]
    assert np.array_equal(out[0].sigma, out[1].sigma)


def test_a_posterior_that_fails_leaves_the_release_it_was_for(monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    monkeypatch.setattr("mpmtl_prob.adaptation.moments.moment_adaptation.infer", fails)
    for call in (
        adaptation.MomentAdaptation().fit,
        lambda source, target: adaptation.adapt.adapt(source, target, label="y", epsilon=1.0),
    ):
        with pytest.raises(MemoryError) as caught:
            call(*charges._domains())
        assert caught.value.release.guarantee.proved.epsilon == 1.0


@pytest.mark.parametrize("name", ["release", "adapt"])
def test_a_command_that_is_refused_has_not_paid(name, tmp_path, capsys):
    for number, (arguments, book) in enumerate(charges.commands(name, tmp_path)):
        try:
            status = cli.main(arguments)
        except SystemExit as end:
            status = end.code
        held = Ledger(book).charges() if book.exists() else []
        assert (status == 0) == bool(held), (number, arguments)
        assert number > 0 or held  # the first is as it should be
    assert str(charges.SECRET)[2:] not in capsys.readouterr().err


def test_a_call_without_end_is_no_answer():
    def endless(ledger, **_):
        raise Endless

    assert isinstance(tried(charges.Door(endless, dict, ())).error, Endless)
