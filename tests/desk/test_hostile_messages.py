"""Message files that somebody has written to break the curator's step, or to learn what is encrypted from how long it is."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers.studies import IDS, STUDY, patients

import mpmtl_prob as mp
from mpmtl_prob import desk
from mpmtl_prob.desk import envelope


@pytest.fixture
def here(tmp_path):
    """A folder with a study and a message of H2."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "inbox").mkdir()
    desk.make_message(mp.Schema.read(tmp_path / "study.toml"), patients("H2")).save(tmp_path / "inbox" / "H2.json")
    return tmp_path


def forged(here, body, **head):
    """The text of a message whose checksum is right."""
    whole = json.loads((here / "inbox" / "H2.json").read_text())
    said = {name: whole[name] for name in ("format", "study", "participant", "nonce")} | head | {"body": body}
    return json.dumps({**said, "checksum": envelope._checksum(said)})


@pytest.mark.parametrize(
    "vector", [[10**400, 0, 0, 0, 0, 0], [False, False, False, False, False, True], [1e999] * 6, [2**1023 * 4] * 6]
)
def test_numbers_that_are_no_doubles_are_refused_by_the_file(here, vector):
    (here / "inbox" / "H2.json").write_text(forged(here, {"vector": vector}))
    with pytest.raises(ValueError, match=r"H2\.json': expected"):
        desk.collect(mp.Schema.read(here / "study.toml"), here / "inbox")


def test_a_key_that_is_there_twice_is_refused(here):
    """Whoever reads the file sees the first, and a parser takes the last."""
    path = here / "inbox" / "H2.json"
    path.write_text(path.read_text().replace('"vector"', '"vector": [0, 0, 0, 0, 0, 1], "vector"', 1))
    with pytest.raises(ValueError, match="holds no message"):
        desk.collect(mp.Schema.read(here / "study.toml"), here / "inbox")


def test_what_is_no_ordinary_file_is_refused_and_not_waited_for(here):
    schema, inbox = mp.Schema.read(here / "study.toml"), here / "inbox"
    os.mkfifo(inbox / "pipe.json")  # whoever opens it waits for ever
    (inbox / "folder.json").mkdir()
    os.symlink("/dev/zero", inbox / "zero.json")
    with open(inbox / "large.json", "wb") as file:
        file.truncate(10**12)  # a terabyte of nothing, which no memory holds
    with pytest.raises(ValueError, match="messages: expected") as raised:
        desk.collect(schema, inbox)
    for name in ("pipe", "folder", "zero", "large"):
        assert f"{name}.json' holds no message" in str(raised.value)


@pytest.mark.parametrize(
    "head", [{"study": "\x1b[2J\x1b[8m"}, {"participant": "H2\x1b[2J"}, {"participant": "H2\u202e"}, {"nonce": "\n"}]
)
def test_what_a_message_says_of_itself_moves_no_cursor(here, head):
    (here / "inbox" / "H2.json").write_text(forged(here, {"vector": [0.0] * 6}, **head))
    with pytest.raises(ValueError, match="holds no message") as raised:
        desk.collect(mp.Schema.read(here / "study.toml"), here / "inbox")
    assert "\x1b" not in str(raised.value)


def test_one_participant_under_two_spellings_is_one(tmp_path):
    """In a study that does not list its participants, H2 and "H2 " are not two of them."""
    listed = 'participants = ["H0", "H1", "H2", "H3", "H4", "H5", "H6", "H7"]'
    (tmp_path / "study.toml").write_text(STUDY.replace(listed, "tasks = 2"))
    schema, inbox = mp.Schema.read(tmp_path / "study.toml"), tmp_path / "inbox"
    inbox.mkdir()
    desk.make_message(schema, patients("H2")).save(inbox / "H2.json")
    for other in ("H2 ", "He\u0301", ""):
        (inbox / "other.json").write_text(forged(tmp_path, {"vector": [0.0] * 6}, participant=other))
        with pytest.raises(ValueError, match=r"other\.json' holds no message"):
            desk.collect(schema, inbox)


@pytest.fixture
def sealed(tmp_path):
    """A study with a curator's key, and the key."""
    pytest.importorskip("cryptography")
    from mpmtl_prob.desk.keys import read_key, write_key

    public = write_key(tmp_path / "curator.key", "curator")
    (tmp_path / "study.toml").write_text(f'{STUDY}\n[keys]\ncurator = "{public}"\n')
    return mp.Schema.read(tmp_path / "study.toml"), read_key(tmp_path / "curator.key", "curator")


def test_how_long_an_encrypted_message_is_says_nothing_of_it(sealed, tmp_path):
    """One of "no estimate", whose zeros are shorter to write, is as long as any other."""
    schema, key = sealed
    messages = [desk.make_message(schema, patients(name)) for name in IDS]
    messages.append(desk.make_message(schema, None, "H0", no_estimate=True))
    sizes = set()
    for i, one in enumerate(messages):
        path = tmp_path / f"{i}.json"
        one.save(path)
        sizes.add(path.stat().st_size)
        assert np.array_equal(desk.Message.load(schema, path, key).vector, one.vector)
    assert len(sizes) == 1


@pytest.mark.parametrize("inside", ["[]", "3", "null", '{"vector": 3}', "[" * 100_000])
def test_what_is_encrypted_and_no_message_is_refused(sealed, tmp_path, monkeypatch, inside):
    schema, key = sealed
    said = {"format": envelope.FORMAT, "study": schema.digest, "participant": "H2", "nonce": "a", "body": inside}
    with monkeypatch.context() as patch:
        patch.setattr(envelope, "_padded", lambda _: inside.encode())
        said["body"] = envelope._sealed(schema.keys["curator"], said)
    (tmp_path / "H2.json").write_text(json.dumps({**said, "checksum": envelope._checksum(said)}))
    with pytest.raises(
        ValueError, match=r"H2\.json': (expected a vector of length 1 at most in it|it is not encrypted to)"
    ):
        desk.Message.load(schema, tmp_path / "H2.json", key)


FULL = """
import resource, sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import mpmtl_prob as mp

released = mp.release(np.eye(3), 1.0, 0.1)
for size in (100, 3000):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        released.save(sys.argv[1])
    except OSError:
        print("refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
released.save(sys.argv[1])
print(mp.Release.load(sys.argv[1]).num_tasks)
"""


def test_a_full_disk_is_an_error_and_no_crash(tmp_path):
    """A disk that is full while a release is written is an error and no crash.

    The release is paid for by then, and would be lost: HDF5 itself ends the process where it cannot write.
    """
    place = tmp_path / "release.nc"
    # -B: bytecode that is written while files are so short would stay, cut off, in the environment
    done = subprocess.run([sys.executable, "-B", "-c", FULL, place], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["refused", "refused", "3"], "")
    assert [path.name for path in tmp_path.iterdir()] == ["release.nc"]
