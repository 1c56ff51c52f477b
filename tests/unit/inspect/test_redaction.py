"""Credentials are removed from texts and JSON values; ordinary text is kept."""

import pytest

from specdec.tools.inspect.redaction import Redactor

SECRETS = {
    "hub": "token hf_abcdefghijklmnopqrstuvwxyz012345",
    "ngc": "key nvapi-AbCdEf0123456789-xyz",
    "aws": "id AKIAIOSFODNN7EXAMPLE",
    "jwt": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJlLXNpZ24",
    "header": "Authorization: Bearer abc.def-0123456789",
    "basic": '{"authorization": "Basic dXNlcjpwYXNzd29yZA=="}',
    "bearer": "sent bearer 0123456789abcdef0123",
    "userinfo": "proxy http://user:pa55word@proxy.example.com:3128 is down",
    "query": "GET https://bucket.example.com/x?X-Amz-Signature=0123456789abcdef&a=1",
    "assignment": "HF_TOKEN=abcdefgh12345678",
    "yaml": 'api_key: "0123456789abcdef"',
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----",
}
PARTS = (
    "abcdefghijklmnop",
    "AbCdEf0123456789",
    "IOSFODNN7",
    "eyJzdWIi",
    "def-0123",
    "dXNlcjp",
    "pa55word",
    "0123456789abcdef",
    "abcdefgh12345678",
    "MIIE",
)


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_credentials_are_removed_by_their_form(text: str) -> None:
    cleaned = Redactor().text(f"before\n{text}\nafter")
    assert cleaned.startswith("before\n")
    assert cleaned.endswith("\nafter")
    assert "[removed]" in cleaned
    assert not [part for part in PARTS if part in cleaned]


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=64 output_tokens: 12345678",
        "progress phase=build percent=40",
        "Secret hugging-face with the key token is missing: create it",
        "authors: basic understanding; bearer of news",
        "http://certify-baseline.lab.svc:8000/v2/models",
        '{"eos_token": "<|endoftext|>"}',
        "sha256 0123456789abcdef0123456789abcdef",
        "task-runner risk-free",
    ],
)
def test_ordinary_text_is_kept(text: str) -> None:
    assert Redactor().text(text) == text


def test_values_of_the_environment_are_removed_by_their_names() -> None:
    environment = {
        "HF_TOKEN": "some-odd-value",
        "MY_PASSWORD": "some-odd-value-2",
        "SMTP_PASS": "odd-value-3",
        "GITHUB_PAT": "odd-value-4",
        "JWT": "odd-value-5",
        "REGISTRY_CREDS": "odd-value-6",
        "COMPASS_PATTERN": "north-by-west",
        "HOME": "/root/home",
        "LANG": "en_US.UTF-8",
        "SSH_AUTH_SOCK": "/tmp/ssh-agent",
        "EMPTY_TOKEN": "",
    }
    redactor = Redactor.of_environment(environment)
    kept = "north-by-west en_US.UTF-8 /root/home /tmp/ssh-agent"
    text = "some-odd-value-2 some-odd-value odd-value-3 odd-value-4 odd-value-5 odd-value-6"
    removed = " ".join(["[removed]"] * 6)
    assert redactor.text(f"{text} {kept}") == f"{removed} {kept}"


def test_texts_inside_json_values_are_cleaned() -> None:
    redactor = Redactor(["very-secret-value"])
    value = {"a": ["x very-secret-value", 1, None, True], "b": {"token": "hf_" + "a" * 30}}
    assert redactor.value(value) == {
        "a": ["x [removed]", 1, None, True],
        "b": {"token": "[removed]"},
    }
