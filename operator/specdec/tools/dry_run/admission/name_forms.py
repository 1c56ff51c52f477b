"""Kubernetes' forms of names, with the API server's sentences."""

import re

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
_NAMESPACE_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_DNS_LABEL}')"
)
_NAME_RULE = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation "
    f"is '{_NAME}')"
)
_VALUE_RULE = (
    f"a valid label must be an empty string or {_CHARACTERS} (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '({_NAME})?')"
)


def subdomain(text: str) -> list[str]:
    """The problems of a text as a DNS subdomain, the form of resource names."""
    return _checked(text, 253, _SUBDOMAIN, _SUBDOMAIN_RULE)


def dns_label(text: str) -> list[str]:
    """The problems of a text as a DNS label, the form of namespace names."""
    return _checked(text, 63, _DNS_LABEL, _NAMESPACE_RULE)


def label_value(text: str) -> list[str]:
    """The problems of a label's value."""
    return _checked(text, 63, f"({_NAME})?", _VALUE_RULE)


def qualified_name(text: str) -> list[str]:
    """The problems of a label's key: a name, after an optional subdomain and '/'."""
    *prefix, name = text.split("/")
    if len(prefix) > 1:
        return [
            f"a qualified name {_NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    problems = []
    if prefix:
        problems = [f"prefix part {problem}" for problem in subdomain(prefix[0])]
        if not prefix[0]:
            problems = ["prefix part must be non-empty"]
    if not name:
        problems.append("name part must be non-empty")
    return problems + [f"name part {item}" for item in _checked(name, 63, _NAME, _NAME_RULE)]


def _checked(text: str, longest: int, pattern: str, rule: str) -> list[str]:
    problems = []
    if len(text.encode("utf-8", "surrogatepass")) > longest:
        problems.append(f"must be no more than {longest} characters")
    if re.fullmatch(pattern, text) is None:
        problems.append(rule)
    return problems
