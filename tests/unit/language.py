"""The terms that pages, descriptions and sources must not use, and the allowed exceptions.

`python tests/unit/language.py operator/specdec/controller` lists the terms in folders or files.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
# The endings of the files that people wrote, by folder.
FOLDERS = {
    "docs": ("md",),
    "crds": ("yaml",),
    "charts": ("md", "yaml", "tpl", "txt"),
    "manifests": ("yaml",),
    "operator": ("py", "rs", "toml"),
    "tests": ("py", "md", "yaml"),
}
# These files list the terms.
LISTS = ("language.py", "test_language.py")
# (file, term): the reason why the file may use the term.
_KUBERNETES = "a message of Kubernetes"
_BIAS = "the message on `embedding_bias_words`, which the BLS and the text models share"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("CODE_OF_CONDUCT.md", "says"): "what people say",
    ("CODE_OF_CONDUCT.md", "wanted"): "unwanted attention",
    ("operator/specdec/client/load/settings.py", "says"): "a prompt",
    ("operator/specdec/client/load/settings.py", "keeper"): "a prompt",
    ("operator/specdec/servers/sampling.py", "words"): "the words of an embedding bias",
    ("operator/specdec/jobs/archive.py", "told"): "`tell` of Python's files",
    ("operator/specdec/images/build/engine_file.py", "told"): "`tell` of Python's files",
    ("operator/bls/specdec-bls/src/tokenizer/mod.rs", "words"): _BIAS,
    ("operator/bls/specdec-bls/tests/request/refusals.rs", "words"): _BIAS,
    ("operator/bls/specdec-bls/tests/tokenizer.rs", "words"): _BIAS,
    ("tests/unit/test_wheel.py", "words"): "COMP_WORDS is a variable of the shell",
    ("tests/unit/client/test_completion.py", "words"): "COMP_WORDS is a variable of the shell",
    ("operator/specdec/images/models/shared/specdec_text.py", "words"): _BIAS,
    ("operator/specdec/backends/methods/draft_target.py", "ahead"): "the field `draftAhead`",
    ("operator/specdec/triton/parameters.py", "ahead"): "the parameter `draft_ahead` of the BLS",
    ("tests/triton/test_answers.py", "words"): _BIAS,
    ("tests/controlplane/test_crd.py", "found"): _KUBERNETES,
    ("tests/controlplane/test_generations.py", "found"): _KUBERNETES,
    ("tests/unit/build/test_tensorrt_refusals.py", "is none"): "TensorRT-LLM's mode `none`",
    ("tests/unit/client/test_speculate.py", "words"): _BIAS,
    ("tests/unit/triton/test_text_models.py", "words"): _BIAS,
}


def files(place: Path = ROOT) -> Iterator[Path]:
    """Yield the files of a folder, or the file, whose texts people of this project wrote."""
    globs = [
        f"{folder}/**/*.{ending}" for folder, endings in FOLDERS.items() for ending in endings
    ]
    for path in sorted({path for glob in ("*.md", *globs) for path in ROOT.glob(glob)}):
        if path.name not in LISTS and (path == place or place in path.parents):
            yield path


def hits(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each term in a file, and a line with its place and the alternative."""
    text, name = path.read_text("utf-8"), path.relative_to(ROOT).as_posix()
    page = path.suffix == ".md"
    lines = list(prose(text)) if page else text.splitlines()
    text = "\n".join(lines)
    if not ANY.search(text):
        return
    for term in TERMS:
        if page and term.source_only:
            continue
        for match in bordered(term.pattern).finditer(text):
            number = text.count("\n", 0, match.start())
            yield (
                term.name,
                f"{name}:{number + 1}: {lines[number].strip()!r}: write {term.instead}",
            )


def prose(text: str) -> Iterator[str]:
    """Yield the lines of a page without code, comments and link targets."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        hidden = fenced or line.startswith(("```", "<!--"))
        yield "" if hidden else re.sub(r"`[^`]*`|\]\([^)]*\)", " X ", line)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for file in files(ROOT / argument):
            for _, line in hits(file):
                print(line)
