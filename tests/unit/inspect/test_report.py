"""`specdec report`: all files about a resource, without any credential."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.tools.inspect.report import packing
from specdec.tools.inspect.report.masking import masked
from specdec.tools.inspect.report.packing import NOT_INCLUDED, Material, files
from specdec.tools.inspect.snapshot import Snapshot
from support.fake_api import Json

ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def body_of(kind: str, name: str, **changes: Any) -> Json:
    meta = {"name": name, "namespace": "lab", **changes.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **changes}


def letters(alphabet: str, least: int, most: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most)


# Texts with the form of a credential, which a report must not contain anywhere.
TOKENS = st.one_of(
    letters(ALNUM, 20, 40).map(lambda text: f"hf_{text}"),
    letters(ALNUM, 20, 40).map(lambda text: f"ghp_{text}"),
    letters(ALNUM, 20, 40).map(lambda text: f"nvapi-{text}"),
    letters(UPPER, 16, 16).map(lambda text: f"AKIA{text}"),
    letters(ALNUM + "._~-", 16, 60).map(lambda text: f"Bearer {text}"),
    letters(ALNUM, 12, 30).map(lambda text: f"Authorization: Basic {text}=="),
    letters(ALNUM, 12, 30).map(lambda text: f"https://user:{text}@example.com/"),
)
VARIABLES = st.builds(
    lambda before, kind, after: f"{before}{kind}{after}",
    letters(UPPER, 0, 6),
    st.sampled_from(["TOKEN", "PASSWORD", "KEY", "_token_", "Password", "apikey"]),
    letters(UPPER, 0, 6),
)
BEFORE = st.sampled_from(["", " ", "\n", '{"a": "b\\n', "token=", "x", "Ä", "[", "\\t", "-", "'"])
AFTER = st.sampled_from(["", " ", "\n", '"}', "]", ",", "\\n", " and more text " * 20])


def secret_part(token: str) -> str:
    """Return the secret part of a token, which must not be in a file."""
    return token.rpartition(" ")[2].removeprefix("https://user:").removesuffix("@example.com/")


# Hypothesis also draws texts from source files, and this text is the name of a report's file.
SECRETS = TOKENS.filter(lambda token: "not-included.txt" not in token)


@given(tokens=st.lists(SECRETS, min_size=14, max_size=14), before=BEFORE, after=AFTER)
def test_no_token_is_in_any_file(tokens: list[str], before: str, after: str) -> None:
    planted = [f"{before}{token}{after}" for token in tokens]
    texts = iter(planted)
    container = {
        "name": "server",
        "command": ["serve", next(texts), "--api-key", tokens[0], f"--token={tokens[1]}"],
        "env": [{"name": "EXTRA", "value": next(texts)}],
    }
    objects = [
        body_of("Pod", "pair-0", spec={"containers": [container]}),
        body_of("ConfigMap", "pair-cm", data={"HF_TOKEN": tokens[2], "file.json": next(texts)}),
        body_of("Job", "pair-1", metadata={"annotations": {"a/b": next(texts), next(texts): "c"}}),
    ]
    snapshot = Snapshot(
        status={"conditions": [{"message": next(texts)}]},
        logs={"pair-0": next(texts), "pair-0-previous": f"a line\n{next(texts)}\nanother line"},
        metrics={"pair-0": f'metric{{label="{next(texts)}"}} 1'},
        events=[{"note": next(texts)}],
        notes=[next(texts)],
    )
    about, check = {"name": next(texts)}, {"checks": [{"message": next(texts)}]}
    packed = files(Material(about, check, objects, snapshot), [])
    written = b"\n".join(packed.values()).decode()
    assert [token for token in tokens if secret_part(token) in written] == []
    assert not [path for path in packed if any(secret_part(token) in path for token in tokens)]


@given(
    names=st.lists(VARIABLES, min_size=3, max_size=3),
    values=st.lists(letters(ALNUM + "/+ .:", 4, 30), min_size=3, max_size=3),
)
def test_no_literal_of_a_secret_variable_is_in_any_file(
    names: list[str], values: list[str]
) -> None:
    planted = [f"planted{number}{value}" for number, value in enumerate(values)]
    env = [{"name": name, "value": value} for name, value in zip(names, planted, strict=True)]
    template = {"spec": {"initContainers": [{"env": env[:1]}], "containers": [{"env": env[1:]}]}}
    objects = [body_of("Deployment", "pair", spec={"template": template})]
    logs = {"pair-0": f"starts with {planted[0]}\nand {planted[1]}, {planted[2]}\n"}
    packed = files(Material({}, {}, objects, Snapshot(logs=logs)), [])
    written = b"\n".join(packed.values()).decode()
    assert "planted" not in written
    assert written.count("[removed]") >= 6
    assert all(name in written for name in names)


def test_references_and_ordinary_fields_are_kept() -> None:
    container = {
        "env": [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
            {"name": "HOME", "value": "/root"},
        ],
        "args": ["--max-tokens", "8", "--tokenizer=a", "--token", "--verbose"],
    }
    value = {"spec": {"containers": [container]}, "draftTokens": 4, "key": "3f3f"}
    assert masked(value) == value


@pytest.mark.parametrize(
    "name", ["DB_PASS", "GH_PAT", "CREDS", "JWT", "LDAP_PW", "SESSION_COOKIE"]
)
def test_variables_with_short_names_of_credentials_are_masked(name: str) -> None:
    assert masked({"name": name, "value": "v1"}) == {"name": name, "value": "[removed]"}
    entry = {"redis-pass": "v1", ".dockerconfigjson": "{}", "bypass": "v1"}
    assert masked(entry) == {
        "redis-pass": "[removed]",
        ".dockerconfigjson": "[removed]",
        "bypass": "v1",
    }


def test_copies_of_the_object_are_left_out() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    meta = {"name": "pair", "managedFields": [{}], "annotations": annotations}
    assert masked({"metadata": meta}) == {
        "metadata": {"name": "pair", "annotations": {"a": "b"}},
    }


def test_value_of_a_short_or_ordinary_literal_stays_in_logs() -> None:
    env = [{"name": name, "value": value} for name, value in {"KEY": "12345678", "T": "a"}.items()]
    objects = [body_of("Pod", "pair-0", spec={"containers": [{"env": env}]})]
    logs = {"pair-0": "listens on port 12345678\n"}
    packed = files(Material({}, {}, objects, Snapshot(logs=logs)))
    assert packed["logs/pair-0.log"] == b"listens on port 12345678\n"
    assert b"12345678" not in packed["objects/lab/pod-pair-0.yaml"]


def test_logs_are_bounded_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TEXT_BYTES", 10)
    snapshot = Snapshot(logs={"a": "12345678", "b": "123", "c": "12"})
    packed = files(Material({}, {}, [], snapshot))
    assert [path for path in packed if path.startswith("logs/")] == ["logs/a.log", "logs/c.log"]
    assert b"logs/b.log is not included" in packed[NOT_INCLUDED]
