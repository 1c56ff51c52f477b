"""Pages, descriptions and sources use the terms of the field."""

from unit.language import EXCEPTIONS, ROOT, TERMS, bordered, files, hits


def test_files_use_the_terms_of_the_field() -> None:
    listed = [
        line
        for path in files()
        for name, line in hits(path)
        if (path.relative_to(ROOT).as_posix(), name) not in EXCEPTIONS
    ]
    assert not listed, "\n".join(listed)


def test_terms_are_whole_words_in_their_other_sense() -> None:
    def names(text: str) -> list[str]:
        return [term.name for term in TERMS if bordered(term.pattern).search(text)]

    assert names("self._again_after = 1; the Keeper") == ["keeper", "again_after"]
    assert names("stop words, not found, look up a name, a restart, a string") == []
