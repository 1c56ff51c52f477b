"""The terms that pages, descriptions and sources must not use, and the allowed exceptions.

A test checks the files of `CLEAN` against `TERMS`; add a glob when its files are clean. An
exception allows a term in a file, and has a reason.

`python tests/unit/language.py operator/specdec/controller` lists the terms in a folder or file.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from typing_extensions import override

from support.documents import load

ROOT = Path(__file__).parents[2]


def bordered(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches the pattern only as a whole word."""
    return re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Term:
    """A word that is not allowed, and what to write instead.

    Attributes:
        pattern: regular expression of the word; `_`, digits and a change of case end a word.
        source_only: the term is refused only as an identifier, such as `one`.
    """

    name: str
    pattern: str
    instead: str
    source_only: bool = False

    @property
    def regex(self) -> re.Pattern[str]:
        """Return a regular expression that matches the pattern only as a whole word."""
        return bordered(self.pattern)


# Words with an ordinary sense are not listed alone: "stop words", "not found", "look up".
TERMS = (
    Term("mend", r"mend(?:s|ed|ing)?", "fix, resolution"),
    Term(
        "words",
        r"(?<!stop.)(?<!bad.)(?<!bias.)(?<!list of )(?<!lists of )words",
        "message",
    ),
    Term("told", r"told|tells?|telling", "report, result"),
    Term("says", r"says?|said|saying", "report, result, output"),
    Term("found", r"(?<!not.)found", "actual, live, result"),
    Term("wanted", r"(?:un)?wanted", "desired"),
    Term("gone", r"gone|(?:goes|went|go) away", "missing, deleted"),
    Term("look", r"looks?(?!.up\b)|looked(?!.up\b)|looking", "check, requeue, troubleshooting"),
    Term("nobody", r"nobody|no.one(?= answer)", "connection failed; or name the subject"),
    Term(
        "is none",
        # `is None` is Python code.
        r"(?<!there.)(?:is|are) (?-i:none)|(?:has|have) not (?:the|an?|its)",
        "invalid; lacks",
    ),
    Term("make way", r"ma(?:kes?|de|king).way", "is being replaced by"),
    Term("late answers", r"late.answers?|(?:who )?comes?.late", "late requests"),
    Term("party", r"part(?:y|ies)(?<!third.party)", "batch"),
    Term("hurry", r"hurr(?:y|ies|ied)", "shorten"),
    Term("ring", r"rings?|rang", "flush"),
    Term("ahead", r"works?.ahead|draft(?:s|ed|ing)?.ahead(?=[ .,])", "pipelined drafting"),
    Term("early round", r"early.rounds?(?=[ .,])", "pipelined round"),
    Term("companion", r"companions?", "batchable"),
    Term("trip", r"(?<!round.)trips?", "batch"),
    Term("keeper", r"keepers?", "watchdog"),
    Term("stretch", r"stretch(?:es|ed)?", "target-only run"),
    Term("rest", r"rests|rested|resting", "idle"),
    Term("visit", r"visit(?:s|ed|ing)?", "reconcile"),
    Term("again_after", r"again_after|retry_after", "requeue_after"),
    Term(
        "one",
        # `|one|` is a closure in Rust.
        r"for (?:one|some) in|lambda (?:one|some)|\|&*(?:one|some)[|,]",
        "the thing's name",
        source_only=True,
    ),
)
# A single search for all terms, because nearly every file has none.
ANY = bordered("|".join(term.pattern for term in TERMS))
# Globs of clean files, and whether they are source code, in which identifiers count too.
CLEAN = (
    ("README.md", False),
    ("CONTRIBUTING.md", False),
    ("CHANGELOG.md", False),
    ("SECURITY.md", False),
    ("docs/*.md", False),
    ("docs/adr/*.md", False),
    ("crds/*.yaml", False),
    ("charts/*/README.md", False),
    ("charts/*/values.yaml", True),
    ("charts/*/templates/**/*.*", True),
    ("manifests/**/*.yaml", True),
    ("operator/specdec/**/*.py", True),
    ("operator/bls/**/*.rs", True),
    ("operator/bls/**/*.toml", True),
    ("tests/**/*.py", True),
    ("tests/chart/alerts.yaml", True),
    ("tests/cluster/README.md", False),
    ("tests/cluster/stages.yaml", True),
    ("tests/controlplane/resources/*.yaml", True),
    ("tests/golden/cases.yaml", True),
    ("tests/golden/checkpoints.yaml", True),
    ("tests/unit/methods.template.md", False),
    ("tests/unit/pipeline/public_models.yaml", True),
    ("tests/unit/public_configurations.yaml", True),
    ("tests/unit/sizing.template.md", False),
)
# These files list the terms.
LISTS = ("tests/unit/language.py", "tests/unit/test_language.py")
# (file, term): the reason why the file may use the term.
_KUBERNETES = "a message of Kubernetes"
_BIAS = "the message on `embedding_bias_words`, which the BLS and the text models share"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("operator/specdec/bench/settings.py", "says"): "a prompt",
    ("operator/specdec/bench/settings.py", "keeper"): "a prompt",
    ("operator/specdec/client/sampling.py", "words"): "the words of an embedding bias",
    ("operator/specdec/jobs/archive.py", "told"): "`tell` of Python's files",
    ("operator/specdec/payload/build/engine_file.py", "told"): "`tell` of Python's files",
    ("operator/bls/specdec-bls/src/tokenizer/mod.rs", "words"): _BIAS,
    ("operator/bls/specdec-bls/tests/request/refusals.rs", "words"): _BIAS,
    ("operator/bls/specdec-bls/tests/tokenizer.rs", "words"): _BIAS,
    ("tests/unit/test_wheel.py", "words"): "COMP_WORDS is a variable of the shell",
    ("tests/unit/client/test_completion.py", "words"): "COMP_WORDS is a variable of the shell",
    ("operator/specdec/payload/models/shared/specdec_text.py", "words"): _BIAS,
    ("operator/specdec/backends/methods/draft_target.py", "ahead"): "the field `draftAhead`",
    ("operator/specdec/triton/parameters.py", "ahead"): "the parameter `draft_ahead` of the BLS",
    ("tests/triton/test_answers.py", "words"): _BIAS,
    ("tests/controlplane/test_crd.py", "found"): _KUBERNETES,
    ("tests/controlplane/test_generations.py", "found"): _KUBERNETES,
    ("tests/unit/build/test_tensorrt_refusals.py", "is none"): "TensorRT-LLM's mode `none`",
    ("tests/unit/client/test_speculate.py", "words"): _BIAS,
    ("tests/unit/triton/test_text_models.py", "words"): _BIAS,
}


@dataclass(frozen=True)
class Hit:
    """A term in a line of a file."""

    path: str
    line: int
    term: Term
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text.strip()!r}: write {self.term.instead}"


def text_of(path: Path, source: bool) -> str:
    """Return the text of a file; if it is no source, without code, comments and link targets."""
    text = path.read_text("utf-8")
    if source:
        return text
    if path.suffix == ".yaml":
        return "\n".join(descriptions(load(text)))
    return "\n".join(prose(text))


def descriptions(schema: object) -> Iterator[str]:
    """Yield the texts of a CustomResourceDefinition for people: descriptions and messages."""
    if isinstance(schema, list):
        for item in schema:
            yield from descriptions(item)
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("description", "message") and isinstance(value, str):
                yield value
            else:
                yield from descriptions(value)


def prose(text: str) -> Iterator[str]:
    """Yield the lines of a page without code, comments and link targets."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        if fenced or line.startswith(("```", "<!--")):
            yield ""
            continue
        yield re.sub(r"`[^`]*`|\]\([^)]*\)", " X ", line)


@cache
def hits(path: Path, source: bool) -> tuple[Hit, ...]:
    """Return the refused terms of a file; cached, because two tests read all files."""
    return tuple(_hits(path, source))


def _hits(path: Path, source: bool) -> Iterator[Hit]:
    name, text = str(path.relative_to(ROOT)), text_of(path, source)
    if not ANY.search(text):
        return
    lines = text.splitlines()
    for term in TERMS:
        if term.source_only and not source:
            continue
        for match in term.regex.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            yield Hit(name, number, term, lines[number - 1])


def clean_files(glob: str) -> list[Path]:
    """Return the files of a glob of `CLEAN`, without the files that list the terms."""
    lists = [ROOT / name for name in LISTS]
    return [path for path in sorted(ROOT.glob(glob)) if path not in lists]


def main(names: list[str]) -> None:
    """Print the terms that the named files and folders contain."""
    for name in names:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*.*"))
        for path in files:
            if path.suffix in (".py", ".rs", ".sh", ".tpl", ".toml", ".yaml", ".md"):
                for hit in hits(path, source=path.suffix != ".md"):
                    print(hit)


if __name__ == "__main__":
    main(sys.argv[1:])
