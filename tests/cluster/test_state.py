"""Names, addresses, identities and the state file."""

import json
import socket
import threading
from pathlib import Path

import pytest

from cluster import cli, folders, network, state
from cluster.errors import ClusterError
from cluster.state import Addresses, Options, State, User


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    return tmp_path


def example(name: str = "example", **options: object) -> State:
    addresses = Addresses("127.0.0.1", 20001, 20002, 20003, "10.96.0.0/20")
    return State(name, Options(**options), addresses, "boot")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "demo", "test-1", "a" * 20])
def test_valid_cluster_name_is_accepted(name: str) -> None:
    assert folders.cluster(name).name == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a" * 21, "a b", "a\n"])
def test_invalid_cluster_name_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="does not fit"):
        folders.cluster(name)


def test_cache_folder_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPECDEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folders.cache() == tmp_path / "xdg" / "specdec"


def test_write_replaces_a_file_and_sets_its_mode(tmp_path: Path) -> None:
    file = folders.write(tmp_path / "secret", "one", 0o600)
    folders.write(file, "two", 0o600)
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_lock_excludes_others_when_its_file_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    running: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(50):
            with folders.locked(lock):
                running.append(1)
                most.append(len(running))
                running.pop()
                lock.unlink()  # This must be the last step: another thread now gets the lock.

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(most) == 200
    assert max(most) == 1


def test_saved_state_is_loaded_unchanged() -> None:
    saved = example(kwok=True, users=(User("alice", ("team-a", "team-b")), User("bob")))
    saved.save()
    assert state.load("example") == saved
    assert list(state.known()) == [saved]
    assert state.load("other") is None


def test_state_of_another_version_is_loaded() -> None:
    saved = example()
    saved.save()
    file = saved.folder / "state.json"
    raw = json.loads(file.read_text())
    del raw["owner"], raw["options"]["hold_jobs"]
    raw["flavour"] = raw["options"]["flavour"] = "new"
    file.write_text(json.dumps(raw))
    assert state.load("example") == saved


def test_free_ports_avoid_listeners_and_other_clusters() -> None:
    example().save()
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        ports = state.free_ports(5)
    assert len(set(ports)) == 5
    assert not {20001, 20002, 20003} & set(ports)


def test_first_service_address() -> None:
    assert example().addresses.first_service == "10.96.0.1"


def test_every_user_has_a_token_and_a_private_kubeconfig() -> None:
    of = example(users=(User("alice", ("team-a", "team-b")), User("bob")))
    state.write_identities(of)
    rows = (of.folder / "keys" / "tokens.csv").read_text().splitlines()
    by_name = {row.split(",")[1]: row for row in rows}
    assert by_name["alice"].endswith(',"team-a,team-b"')
    assert by_name["bob"].count(",") == 2
    assert {"admin", "system:kube-scheduler", "system:node:example"} <= set(by_name)
    config = json.loads(of.user("alice").read_text())
    assert config["users"][0]["user"]["token"] == by_name["alice"].split(",")[0]
    assert of.user("alice").stat().st_mode & 0o777 == 0o600
    assert of.kubeconfig.stat().st_mode & 0o777 == 0o600
    tokens = [row.split(",")[0] for row in rows]
    assert len(set(tokens)) == len(tokens)


def test_node_gets_a_free_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "run", lambda _: '[{"dst": "default"}, {"dst": "10.213.0.0/16"}]')
    with pytest.raises(ClusterError, match="No free network"):
        network.addresses()
    monkeypatch.setattr(network, "run", lambda _: '[{"dst": "10.214.0.7"}]')
    assert network.addresses().subnet == 1
    State("first", Options(kind="node"), network.addresses(), "boot").save()
    assert network.addresses().subnet == 2


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["kubeconfig", "--name", "missing"], "The cluster missing is not up"),
        (["up", "--node", "--kwok"], "choose one"),
        (["build", "kubelt"], "There is no program kubelt"),
        (["image", "load", "--name", "missing", "x"], "is not up"),
        (["gpus", "--name", "missing", "2"], "is not up"),
        (["gpus", "--name", "missing", "-1"], "cannot offer -1 GPUs; give 0 or more"),
        (["down", "--name", "../x"], "does not fit"),
    ],
)
def test_user_error_prints_one_line_and_exits_with_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_down_without_a_cluster_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["down", "--name", "missing"]) == 0
    assert "missing is not up" in capsys.readouterr().err
