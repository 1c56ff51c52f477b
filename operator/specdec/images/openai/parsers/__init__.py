"""Split an answer's text into content, reasoning and tool calls, piece by piece.

A piece may hold any number of tokens, so a tag may arrive in parts, or with text on both sides.
Every parser gives the same result for every way of cutting the text. `REASONING` and `TOOLS` list
the parsers by name.
"""

from collections.abc import Callable, Collection

from specdec.images.openai.parsers.hermes import OPEN, Hermes
from specdec.images.openai.parsers.llama3_json import Llama3Json
from specdec.images.openai.parsers.split import Parser
from specdec.images.openai.parsers.thinking import Thinking, opened

# By name: whether an answer begins with reasoning if the prompt neither opens nor closes it.
REASONING: dict[str, bool] = {"deepseek_r1": True, "qwen3": False}
# By name: makes a parser for answers to requests with functions of these names.
TOOLS: dict[str, Callable[[Collection[str]], Parser]] = {
    "hermes": lambda _: Hermes(),
    "llama3_json": Llama3Json,
}


def reasoning(name: str, prompt: str, *, with_tools: bool) -> Parser:
    """The parser of reasoning for the answer to a rendered prompt.

    Args:
        name: a key of `REASONING`.
        prompt: may end with an opened or a closed thought, as templates write it.
        with_tools: a tool call ends an unclosed thought.
    """
    return Thinking(opened(prompt, default=REASONING[name]), (OPEN,) if with_tools else ())
