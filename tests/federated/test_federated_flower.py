"""The protocol over Flower's messages, on a grid in this process. `make federated` runs it; without Flower it is left out."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.studies import IDS, STUDY, patients

import mpmtl_prob as mp
from mpmtl_prob import federated
from mpmtl_prob.data.shards import Part
from mpmtl_prob.federated.flower import apps as flower
from mpmtl_prob.federated.flower import sites

pytest.importorskip("flwr")
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

TASKS = mp.datasets.synthetic_low_rank(num_tasks=6, num_features=3, rows=8).train
CONFIG = {
    "epsilon": 1.0, "delta": 0.0, "adjacency": "replace", "mechanism": "wishart", "trust": "secure_sum", "num-tasks": 6,
    "features": "3", "sites": 3, "dropouts": 1, "colluders": 0, "partners": 0, "timeout": 0.2, "shards": False, "ledger": "",
    "total": 1.0, "unsafe-seed": 3, "reference": "", "study": "",
}  # fmt: skip


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Say which node this process is, as Flower's messages ask for it and a link knows."""
    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


def rows(part):
    return TASKS.take(range(part, 6, 3))


class Grid:
    """Three nodes in this process, whose messages are real and whose link is not; node k has the id 100 + k.

    ``change(stage, k)``: "gone", the link says so; "silent", nobody says anything; "raises", the client app does; or what the
    node says instead, as records.
    """

    def __init__(self, folder, change=lambda stage, k: None, nodes=3, trust="secure_sum", signers=(), **options):
        self._folder, self._change, self._nodes, self._signers = folder, change, nodes, dict(enumerate(signers))
        self._options = options | {"policy": federated.SitePolicy(trust=trust)}

    def get_node_ids(self):
        return [100 + k for k in reversed(range(self._nodes))]

    def send_and_receive(self, messages, *, timeout):
        assert timeout == CONFIG["timeout"]
        for message in messages:
            assert message.metadata.ttl == timeout
            k = message.metadata.dst_node_id - 100
            fate = self._change(message.content["call"]["stage"], k)
            if fate == "gone":
                reply = Message(Error(code=5, reason="gone"), reply_to=message)
                reply.metadata.__dict__["_src_node_id"] = 1  # of the link
                yield reply
            elif isinstance(fate, dict):
                yield Message(
                    RecordDict({name: ConfigRecord(record) for name, record in fate.items()}), reply_to=message
                )
            elif fate != "silent":
                source = (lambda: 1 / 0) if fate == "raises" else lambda k=k: rows(k)
                options = self._options | {"signer": self._signers.get(k)}
                yield flower.answer(message, source, self._folder / str(k), **options)


def run(tmp_path, config=(), **options):
    return flower.main(Grid(tmp_path, **options), CONFIG | {"out": str(tmp_path / "out")} | dict(config))


def outcome(tmp_path):
    return json.loads((tmp_path / "out" / "outcome.json").read_text())


def test_the_release_is_the_curators_and_goes_back_to_everybody(tmp_path):
    result = run(tmp_path)
    here = federated.run(
        federated.invite(1.0, 6, 3, sites=3, dropouts=1, colluders=0), [federated.Site(k, rows(k)) for k in range(3)],
        unsafe_seed=3, progress_bar=False,
    )  # fmt: skip
    np.testing.assert_array_equal(result.release.sigma, here.release.sigma)
    for folder in ("out", "0", "1", "2"):
        (path,) = (tmp_path / folder).glob("release*.nc")
        np.testing.assert_array_equal(mp.Release.load(path).sigma, here.release.sigma)
    assert {name: size for name, size in outcome(tmp_path)["moved"].items() if name != "release"} == here.moved
    assert outcome(tmp_path)["sites"] == 3


REFERENCE = {"features": {"0": [0, 1], "1": [0, 1], "2": [0, 2]}, "target": [0, 1], "effects": {"1": 0.1}}


def test_configured_reference_values_make_a_mixed_model(tmp_path, monkeypatch):
    """Reference values of the configuration make the release one of a mixed model.

    Nodes get them with the invitation, and the release is that of a call in Python.
    """
    (tmp_path / "reference.json").write_text(json.dumps(REFERENCE))
    named = replace(TASKS, features=("0", "1", "2")).with_intercept()
    monkeypatch.setattr(sys.modules[__name__], "TASKS", named)
    config = {"features": "0, 1, 2, intercept", "reference": str(tmp_path / "reference.json")}
    result = run(tmp_path, config)
    reference = mp.Reference(**REFERENCE)
    features = ["0", "1", "2", "intercept"]
    here = federated.run(
        federated.invite(1.0, 6, features, sites=3, dropouts=1, colluders=0, reference=reference),
        [federated.Site(k, rows(k)) for k in range(3)], unsafe_seed=3, progress_bar=False,
    )  # fmt: skip
    assert result.release.message == "effects"
    assert result.release.effects.reference == reference
    np.testing.assert_array_equal(result.release.sigma, here.release.sigma)


@pytest.mark.parametrize(
    ("text", "features", "words"),
    [
        ("{", "0,1,2", "reference: .* is no JSON"),
        ('{"features": {"0": [0, 0]}, "target": [0, 1]}', "0", "reference: features: '0': expected a centre and a pos"),
        (json.dumps(REFERENCE), "3", "features: expected names of the columns beside reference values, .* 3"),
        (
            json.dumps(REFERENCE),
            "0,1,age",
            r"reference: expected values of the columns .*none of 'age' and values of '2'",
        ),
        (json.dumps(REFERENCE | {"units": {}}), "0,1,2", "reference: 'units': expected the keys"),
    ],
)
def test_a_bad_reference_ends_a_run_before_nodes_are_asked(tmp_path, text, features, words):
    """A malformed reference ends a run before a node is asked, and nothing is charged."""
    (tmp_path / "reference.json").write_text(text)
    config = {"reference": str(tmp_path / "reference.json"), "features": features, "ledger": str(tmp_path / "book.db")}
    with pytest.raises(ValueError, match=words):
        run(tmp_path, config, change=lambda stage, k: pytest.fail("a node was asked"))
    assert outcome(tmp_path)["error"] == "ValueError"
    assert not (tmp_path / "book.db").exists()


@pytest.mark.parametrize("fate", ["gone", "silent", "raises"])
@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "reveal"])
def test_a_node_that_is_lost_is_left_out_or_its_loss_has_a_name(tmp_path, stage, fate):
    lost = lambda at, k: fate if (at, k) == (stage, 1) else None
    arrived = stage == "reveal" or (fate == "raises" and stage != "mask")  # rows are read at one stage alone
    assert run(tmp_path, change=lost).sites == (3 if arrived else 2)
    if not arrived:
        with pytest.raises(federated.TooFewOwners):
            run(tmp_path / "again", config={"dropouts": 0}, change=lost)
        assert outcome(tmp_path / "again")["error"] == "TooFewOwners"
    assert len(federated.RunLog(tmp_path / "0" / "account.db").answered()) == 1


@pytest.mark.parametrize("seeded", [(), (1,), (0, 1, 2)])
def test_noise_of_a_nodes_own_seed_guarantees_nothing(tmp_path, seeded):
    """The server has no seed of its own, and is told that a node has one."""

    class Seeded(Grid):
        def send_and_receive(self, messages, *, timeout):
            for message in messages:
                k = message.metadata.dst_node_id - 100
                self._options["unsafe_seed"] = 5 if k in seeded else None
                yield from super().send_and_receive([message], timeout=timeout)

    for trust in ("no_curator", "secure_sum"):  # where the server adds the noise no seed of a node's is used
        config = CONFIG | {"trust": trust, "unsafe-seed": -1, "out": str(tmp_path / trust)}
        result = flower.main(Seeded(tmp_path / trust, trust=trust), config)
        assert (result.release.guarantee.proved is None) == (bool(seeded) and trust == "no_curator")


def test_the_server_learns_the_name_of_an_error_only(tmp_path, capsys):
    """The server is told the name of an error and nothing else."""
    result = run(tmp_path, change=lambda at, k: "raises" if k == 1 else None)
    assert result.refused == {1: "ZeroDivisionError"}
    assert "division" not in json.dumps(outcome(tmp_path))
    assert "division by zero" in capsys.readouterr().err  # the owner is


MALFORMED = [
    {},
    {"message": {"vector": "no bytes"}, "site": {"number": 1}},
    {"message": {"vector": b""}},
    {"message": {"vector": b""}, "site": {"number": "one"}},
    {"message": {"vector": b""}, "site": {"number": -1}},
    {"message": {"vector": b""}, "site": {"number": 0, "seeded": False}},  # another's
    {"message": {"vector": b""}, "site": {"number": 1}},
    {"message": {"vector": b""}, "site": {"number": 2**40}},
    {"refused": {}},
    {"refused": {"error": "x" * 10_000}},
    {"refused": {"error": "a\nshare: 3 of 3 answered"}},
]


@pytest.mark.parametrize("reply", MALFORMED)
@pytest.mark.parametrize("stage", ["advertise", "mask"])
def test_a_node_that_answers_wrongly_is_left_out_and_not_logged(tmp_path, stage, reply, capsys):
    """A node that answers something else is left out, and writes nothing into the log."""
    assert run(tmp_path, change=lambda at, k: reply if (at, k) == (stage, 1) else None).sites == 2
    assert "x" * 100 not in capsys.readouterr().out + json.dumps(outcome(tmp_path))
    assert "share: 3 of 3" not in json.dumps(outcome(tmp_path))


@pytest.fixture
def signers():
    private, public = zip(*(federated.new_key() for _ in range(3)), strict=True)
    return [federated.Signer(key, dict(enumerate(public))) for key in private]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_signing_site_keeps_its_number_on_any_node(tmp_path, signers, order):
    """A site that signs has the number of its key, whichever node it is on."""
    result = run(tmp_path, config={"dropouts": 0}, signers=[signers[k] for k in order])
    assert result.sites == 3
    assert "confirm" in result.moved
    np.testing.assert_array_equal(
        result.release.sigma, run(tmp_path / "unsigned", config={"dropouts": 0}).release.sigma
    )
    gone = lambda at, k: "gone" if (at, k) == ("share", 1) else None
    with pytest.raises(federated.TooFewOwners, match="share: 2 owners"):
        run(tmp_path, runs=2, config={"dropouts": 0}, signers=[signers[k] for k in order], change=gone)


def test_signed_runs_go_on_without_nodes_that_never_came(tmp_path, signers):
    assert run(tmp_path, nodes=2, signers=[signers[2], signers[0]]).sites == 2


def test_a_number_that_is_not_the_keys_is_refused(tmp_path, signers):
    call = {"stage": "share", "number": 1, "invitation": flower.wire.write(flower.invited(CONFIG | {"out": ""}))}
    message = Message(
        RecordDict({"call": ConfigRecord(call), "message": ConfigRecord({})}), 100, f"query.{flower.ACTION}"
    )
    message.metadata.__dict__["_message_id"] = "1"
    reply = flower.answer(message, rows(0), tmp_path, policy=federated.SitePolicy(), signer=signers[0])
    assert set(reply.content) == {"refused"}


def test_an_owner_does_not_do_what_it_does_not_accept(tmp_path):
    with pytest.raises(federated.TooFewOwners):
        run(tmp_path, config={"trust": "curator"})
    assert [p for p in tmp_path.rglob("account.db") if federated.RunLog(p).answered()] == []
    assert run(tmp_path, config={"trust": "curator"}, trust="curator").sites == 3


def test_every_owner_answers_as_often_as_it_means_to(tmp_path):
    run(tmp_path)
    with pytest.raises(federated.TooFewOwners):
        run(tmp_path)
    assert run(tmp_path, runs=2).sites == 3


def test_too_few_nodes_are_named_within_the_timeout(tmp_path):
    with pytest.raises(federated.TooFewOwners, match="connect: 1 owners are there, and it takes 2"):
        run(tmp_path, nodes=1)
    assert run(tmp_path, nodes=2).sites == 2


def test_the_server_pays_before_it_publishes(tmp_path):
    ledger = {"ledger": str(tmp_path / "server.db"), "unsafe-seed": -1}
    run(tmp_path, config=ledger)
    with pytest.raises(mp.privacy.BudgetExceeded):
        run(tmp_path, config=ledger, runs=2)
    assert outcome(tmp_path)["error"] == "BudgetExceeded"
    assert len(mp.privacy.Ledger(tmp_path / "server.db").charges()) == 1


def shard(k):
    tasks = tuple(range(k, 6, 3))
    read = lambda: mp.TaskData.from_lists(*zip(*map(TASKS.rows_of, tasks), strict=True), tasks=tasks)
    return Part(f"shard {k}", tasks, TASKS.features, read)


def test_a_machine_of_shards_answers_as_often_as_it_means_to_too(tmp_path, monkeypatch):
    shards = mp.TaskShards(tuple(map(shard, range(3))), progress_bar=False)
    monkeypatch.setattr("test_federated_flower.rows", lambda k: shards)
    config = {"trust": "curator", "shards": True}
    lost = lambda at, k: "gone" if (at, k) == ("shards", 1) else None
    assert run(tmp_path, config=config, trust="curator", change=lost).sites == 2  # two were asked twice, in one run
    assert [len(federated.RunLog(tmp_path / str(k) / "account.db").answered()) for k in range(3)] == [1, 1, 1]
    with pytest.raises(flower.scattered.LostShards):
        run(tmp_path, config=config, trust="curator")
    assert outcome(tmp_path)["says"] == "0 tasks are in the sum, and 6 were announced"


def test_a_release_is_taken_once_and_of_a_run_that_was_answered(tmp_path, monkeypatch):
    def sent(invitation):
        call = {"stage": "release", "number": 0, "invitation": flower.wire.write(invitation)}
        records = {"call": ConfigRecord(call), "message": ConfigRecord({"release": b"x" * 100})}
        message = Message(RecordDict(records), 100, f"query.{flower.ACTION}")
        message.metadata.__dict__["_message_id"] = "1"
        return set(flower.answer(message, rows(0), tmp_path / "0", policy=federated.SitePolicy()).content)

    answered, other = flower.invited(CONFIG), flower.invited(CONFIG)
    monkeypatch.setattr(flower, "invited", lambda _: answered)
    run(tmp_path)
    assert sent(other) == {"refused"}
    assert sent(answered) == {"refused"}
    (path,) = (tmp_path / "0").glob("*.nc")
    mp.Release.load(path)


def test_no_secret_stays(tmp_path):
    run(tmp_path)
    assert list(tmp_path.rglob("*.state")) == []


@pytest.mark.parametrize("call", [{}, {"stage": "mask"}, {"stage": "mask", "number": 0, "invitation": b"{}"}])
def test_what_is_no_message_of_ours_is_refused(tmp_path, call):
    content = RecordDict({"call": ConfigRecord(call), "message": ConfigRecord({"text": "no bytes"})})
    message = Message(content, 100, f"query.{flower.ACTION}")
    message.metadata.__dict__["_message_id"] = "1"
    reply = flower.answer(message, rows(0), tmp_path, policy=federated.SitePolicy())
    assert set(reply.content) == {"refused"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_app_can_be_built(tmp_path, monkeypatch):
    from flwr.cli.build import build_fab_from_disk

    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    assert b"mpmtl_federated/client_app.py" in build_fab_from_disk(sites.app())


def test_the_apps_configuration_is_one_that_can_be_run():
    import tomllib

    config = tomllib.loads((sites.app() / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert config.keys() - {"simulated", "out"} == CONFIG.keys()
    assert flower.invited(config).terms.num_tasks == 139


def test_a_node_goes_by_its_own_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(sites.app()))
    from mpmtl_federated import data

    X, y = TASKS.rows_of(0)
    frame = TASKS.to_pandas(task="who", target="mark")
    frame.to_csv(tmp_path / "marks.csv", index=False)
    node = {
        "folder": str(tmp_path),
        "data": str(tmp_path / "marks.csv"),
        "task": "who",
        "target": "mark",
        "trust": "no_curator",
    }
    settings = data.owner(node, {"simulated": "school"})
    np.testing.assert_allclose(settings["source"]().rows_of(0)[0], X)
    np.testing.assert_allclose(settings["source"]().rows_of(0)[1], y)
    capsys.readouterr()
    some = data.owner(node | {"exclude": "0, 2"}, {})["source"]()
    assert list(some.features) == [str(name) for name in TASKS.features if str(name) not in ("0", "2")]
    assert capsys.readouterr().err == f"features are all other columns: {', '.join(some.features)}\n"
    own = data.owner(node | {"intercept": True}, {})["source"]()
    assert (own.intercept, list(own.features)) == (True, [*map(str, TASKS.features), "intercept"])
    with pytest.raises(ValueError, match="intercept: expected true or false, got 'no'"):
        data.owner(node | {"intercept": "no"}, {})
    assert settings["policy"].trust == "no_curator"
    assert (settings["policy"].adjacency, settings["policy"].colluders) == (None, 0)
    careful = data.owner(node | {"adjacency": "replace", "colluders": 2}, {})["policy"]
    assert (careful.adjacency, careful.colluders) == ("replace", 2)
    with pytest.raises(ValueError, match=r"node configuration: expected .*colluders, .*, got colluder$"):
        data.owner(node | {"colluder": 2}, {})
    assert settings["signer"] is None
    federated.write_key(tmp_path / "site.key", tmp_path / "0.pub")
    signing = {"signing-key": str(tmp_path / "site.key"), "known-keys": str(tmp_path)}
    assert data.owner(node | signing, {})["signer"].number == 0
    with pytest.raises(ValueError, match="signing-key, known-keys: expected both"):
        data.owner(node | {"signing-key": "x"}, {})
    simulated = {"partition-id": 1, "num-partitions": 70}
    settings = data.owner(simulated, {"simulated": "synthetic_low_rank", "out": str(tmp_path)})
    assert settings["folder"] == Path(tmp_path) / "owner-1"
    with pytest.raises(KeyError):  # a node that was told nothing has no rows
        data.owner({}, {"simulated": "school", "out": "x"})


def test_a_node_follows_its_study_file_once_its_owner_agreed(tmp_path, monkeypatch):
    """A node of a study goes by its file once its owner has agreed."""
    monkeypatch.syspath_prepend(str(sites.app()))
    from mpmtl_federated import data

    (tmp_path / "study.toml").write_text(STUDY)
    frame = pd.concat([patients(name) for name in IDS])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    schema = mp.Schema.read(tmp_path / "study.toml")
    node = {"folder": str(tmp_path), "data": str(tmp_path / "rows.csv"), "study": str(tmp_path / "study.toml")}
    for agreed in ("", schema.digest[:7], "0" * 12):
        with pytest.raises(ValueError, match="agreed: expected the first 8 letters of the study's hash"):
            data.owner(node | {"agreed": agreed}, {})
    node |= {"agreed": schema.digest[:12], "participants": "H1, H4"}
    settings = data.owner(node, {})
    assert settings["source"]().tasks == ("H1", "H4")
    assert np.array_equal(settings["source"]().rows, schema.tasks(frame, ["H1", "H4"]).rows)
    invitation = flower.invited(CONFIG | {"study": node["study"], "out": ""})
    assert (invitation.study, invitation.terms.num_tasks, invitation.sites) == (schema.digest, 8, 3)
    names = schema.coefficients
    settings["policy"].check(flower.wire.read(flower.wire.write(invitation)))
    for other, message in (
        (federated.invite(schema.spec, 8, names, sites=3), "expected one to this study"),
        (
            federated.invite(
                9.0, 8, schema.coefficients, 0.01, reference=schema.reference, sites=3, study=schema.digest
            ),
            "epsilon",
        ),
    ):
        with pytest.raises(federated.RunRefused, match=message):
            settings["policy"].check(other)
    frame.assign(age="").to_csv(tmp_path / "rows.csv", index=False)
    assert settings["source"]().shape == (6, 2)  # messages of "no estimate"


def test_a_release_over_nodes_remembers_its_study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    schema = mp.Schema.read(tmp_path / "study.toml")
    parts = [schema.tasks(pd.concat([patients(name) for name in IDS[k::3]])) for k in range(3)]
    invitation = federated.invite(
        schema.spec, 8, schema.coefficients, sites=3, dropouts=0, colluders=0, study=schema.digest
    )
    result = federated.run(
        invitation, [federated.Site(k, part) for k, part in enumerate(parts)], unsafe_seed=3, progress_bar=False
    )
    assert result.release.study == schema.digest
    assert invitation.digest != replace(invitation, study=None).digest
