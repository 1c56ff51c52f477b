"""Split an answer's text into content, reasoning and tool calls, piece by piece.

A piece may hold any number of tokens, so a tag may arrive in parts, or with text on both sides.
Every parser gives the same result for every way of cutting the text. `REASONING` and `TOOLS` list
the parsers by name.
"""

from specdec.images.openai.parsers.hermes import Hermes
from specdec.images.openai.parsers.llama3_json import Llama3Json
from specdec.images.openai.parsers.split import Parser
from specdec.images.openai.parsers.thinking import DeepSeekR1, Qwen3

REASONING: dict[str, type[Parser]] = {"deepseek_r1": DeepSeekR1, "qwen3": Qwen3}
TOOLS: dict[str, type[Parser]] = {"hermes": Hermes, "llama3_json": Llama3Json}
