"""Pages, descriptions and sources use the terms of the field."""

import pytest

from unit.language import CLEAN, EXCEPTIONS, TERMS, clean_files, hits


@pytest.mark.parametrize(("glob", "source"), CLEAN, ids=[glob for glob, _ in CLEAN])
def test_files_use_the_terms_of_the_field(glob: str, source: bool) -> None:
    files = clean_files(glob)
    assert files, f"no file is named {glob}"
    all_ = [hit for path in files for hit in hits(path, source)]
    unexpected = [hit for hit in all_ if (hit.path, hit.term.name) not in EXCEPTIONS]
    assert not unexpected, "\n".join(map(str, unexpected))


def test_every_exception_is_still_needed() -> None:
    files = [(path, source) for glob, source in CLEAN for path in clean_files(glob)]
    used = {(hit.path, hit.term.name) for file in files for hit in hits(*file)}
    assert set(EXCEPTIONS) <= used


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("its mend is to wait", "mend"),
        ("in the server's own words", "words"),
        ("self._again_after = 1", "again_after"),
        ("the Keeper wakes", "keeper"),
        ("nobody answers", "nobody"),
        ("X is none of them", "is none"),
        ("calls.all(|one| one.is_short())", "one"),
    ],
)
def test_listed_term_is_reported(text: str, name: str) -> None:
    assert name in {term.name for term in TERMS if term.regex.search(text)}


@pytest.mark.parametrize(
    "text",
    [
        "stop words and bad words",
        "the claim was not found",
        "look up a name",
        "a restart",
        "string",
    ],
)
def test_ordinary_senses_are_allowed(text: str) -> None:
    assert not [term.name for term in TERMS if term.regex.search(text)]
