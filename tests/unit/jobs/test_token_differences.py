"""Tokenizers of target and draft are compared by content where their hashes differ."""

from pathlib import Path
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.jobs.inspection import inspect
from specdec.jobs.tokenizer_difference import compared
from specdec.pipeline.validation import compatibility
from support.simulated_cluster import resource
from unit.jobs.checkpoints import VOCABULARY, claim, run, tokenizer, write
from unit.jobs.termination import read_result

SPECIAL = {"id": 4, "content": "<|reserved_special_token_0|>", "special": True}
END = {"id": 0, "content": "<|endoftext|>", "special": True}
MORE = {**VOCABULARY, "<|reserved_special_token_0|>": 4}


def difference(folder: Path, target: dict[str, Any], draft: dict[str, Any]) -> tuple[int, str]:
    """Return the number of differences that the fetch Job finds, and the first."""
    folders = {
        role: write(folder / role, **{"tokenizer.json": own})
        for role, own in (("target", target), ("draft", draft))
    }
    facts = {role: inspect(own) for role, own in folders.items()}
    draft_facts = compared(facts, folders)["draft"]
    assert draft_facts.compared_tokenizer == facts["target"].tokenizer
    return draft_facts.token_differences or 0, draft_facts.first_difference or ""


@pytest.mark.parametrize(
    ("draft", "number", "first"),
    [
        (tokenizer({**VOCABULARY, "a": 2, "b": 1}), 2, "1 ('b' in the draft, 'a' in the target)"),
        # The draft cannot produce a token that it lacks.
        (tokenizer({k: v for k, v in VOCABULARY.items() if k != "ab"}), 0, ""),
        (tokenizer({**VOCABULARY, "c": 9}), 1, "9 ('c' in the draft, none in the target)"),
        # A reserved token was renamed, as fine-tuned models do.
        (
            tokenizer(
                {**VOCABULARY, "<tool>": 4},
                added_tokens=[END, {**SPECIAL, "content": "<tool>"}],
            ),
            0,
            "",
        ),
        # Other merges give the same ids the same tokens.
        ({**tokenizer(MORE), "model": {"vocab": MORE, "merges": ["b a"]}}, 0, ""),
        (
            {"model": {"vocab": [["<|endoftext|>", 0.0], ["z", -1.0]]}},
            1,
            "1 ('z' in the draft, 'a",
        ),
    ],
)
def test_tokens_that_differ_are_counted(
    draft: dict[str, Any], number: int, first: str, tmp_path: Path
) -> None:
    target = tokenizer(MORE, added_tokens=[END, SPECIAL])
    counted, named = difference(tmp_path, target, draft)
    assert counted == number
    assert named.startswith(first)


def test_equal_and_unreadable_tokenizers_are_not_compared(tmp_path: Path) -> None:
    same = {role: write(tmp_path / role) for role in ("target", "draft")}
    facts = {role: inspect(folder) for role, folder in same.items()}
    assert compared(facts, same) == facts
    assert compared({"target": facts["target"]}, same) == {"target": facts["target"]}
    piece = {"tokenizer.json": None, "tokenizer.model": b"piece"}
    same["draft"] = write(tmp_path / "piece", **piece)
    facts["draft"] = inspect(same["draft"])
    assert compared(facts, same) == facts


def test_refusal_has_the_number_and_the_first_token_and_no_difference_is_accepted(
    tmp_path: Path,
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    other = tokenizer({**VOCABULARY, "a": 2, "b": 1})
    write(tmp_path / "sources" / "target" / "model")
    for name, own in (("draft", other), ("merges", {"model": {"vocab": VOCABULARY}})):
        write(tmp_path / "sources" / "draft" / name, **{"tokenizer.json": own})
        plan = {"target": claim(), "draft": claim(name)}
        assert run(plan, volume, tmp_path / "sources") == 0
        facts = {
            role: inspect(tmp_path / "sources" / "target" / "model").model_validate(each["facts"])
            for role, each in read_result()["models"].items()
        }
        refused = compatibility.judge(SpeculativeModel.parse(resource()), facts).refused
        if name == "draft":
            assert refused[0].code == "TokenizerMismatch"
            assert "2 tokens" in refused[0].message
            assert "1 ('b' in the draft, 'a' in the target)" in refused[0].message
        else:
            assert [str(each.code) for each in refused] == []
