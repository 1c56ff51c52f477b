"""A chat template of a stranger is compiled within limits of time and memory."""

import resource

import pytest

from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.errors import ApiError
from specdec.images.openai.template import Templates, TemplateStartError


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only the limit of processor time end a compilation, however busy the machine is."""
    monkeypatch.setattr("specdec.images.openai.template._START_SECONDS", 600)


def processor_seconds() -> float:
    """Return the processor time of all ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    "source",
    ["{{ 10**(10**8) }}", "{% set x = 7**(9**9) %}{{ x }}"],
    ids=["power", "power-in-a-set"],
)
async def test_constant_expression_is_not_computed_without_limit(source: str) -> None:
    before = processor_seconds()
    made = Templates(ChatFormat(source), seconds=1)
    with pytest.raises(
        TemplateStartError, match=r"^the chat template takes more than 1 s of proc"
    ):
        await made.start()
    assert processor_seconds() - before < 6


async def test_constant_that_exceeds_the_memory_is_left_to_the_rendering() -> None:
    made = Templates(ChatFormat("{{ 'a' * 10**12 }}"), seconds=60)
    try:
        await made.start()
        with pytest.raises(ApiError, match="it needs too much memory"):
            await made.render({"messages": []})
    finally:
        await made.close()


@pytest.mark.parametrize(
    "source",
    ["{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "{{ " + "-" * 20_000 + "1 }}"],
    ids=["brackets", "signs"],
)
async def test_what_the_compiler_cannot_take_is_one_sentence(source: str) -> None:
    made = Templates(ChatFormat(source), seconds=60)
    try:
        with pytest.raises(TemplateStartError, match=r"; name another file with --chat-template$"):
            await made.start()
    finally:
        await made.close()


async def test_templates_of_usual_size_compile_within_the_limit() -> None:
    block = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}{% endfor %}\n"
    made = Templates(ChatFormat(block * 400), seconds=2)
    try:
        await made.start()
    finally:
        await made.close()
