"""The client of the process that renders chat templates."""

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from specdec.openai.checkpoint import ChatFormat
from specdec.openai.errors import ApiError

SECONDS = 2
CHARACTERS = 4 << 20
_PROGRAM = "specdec.openai.template_process"
_START_SECONDS = 30
# The longest line of the pipe: a prompt in JSON, where a character has at most twelve bytes.
_LINE_BYTES = 12 * CHARACTERS + 1024


class TemplateStartError(Exception):
    """The chat template cannot be used; the message names the cause."""


class Templates:
    """Renders the prompts of chats, one at a time.

    The process is replaced when a template exceeds its time. Without a template, every chat is an
    error.
    """

    def __init__(
        self, form: ChatFormat, seconds: float = SECONDS, characters: int = CHARACTERS
    ) -> None:
        self.form = form
        self._seconds, self._characters = seconds, characters
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Start the process, if there is a template.

        Raises:
            TemplateStartError: the template cannot be compiled.
        """
        templates = {"default": self.form.template, "tool_use": self.form.tool_template}
        sources = {name: source for name, source in templates.items() if source is not None}
        if not sources:
            return
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        setup = {
            "templates": sources,
            "seconds": max(1, round(self._seconds)),
            "characters": self._characters,
        }
        try:
            async with asyncio.timeout(_START_SECONDS):
                result = await self._exchange(setup)
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            await self._end()
            raise TemplateStartError(
                f"the chat template was not compiled within {_START_SECONDS} s; "
                "name another file with --chat-template"
            ) from error
        if "error" in result:
            await self._end()
            raise TemplateStartError(
                f"the chat template has an error ({result['error']}); "
                "name another file with --chat-template"
            )

    async def render(self, variables: Mapping[str, Any]) -> str:
        """Render a conversation.

        Raises:
            ApiError: there is no template, it refuses the conversation, or it exceeds a limit.
        """
        async with self._lock:
            if self.form.template is None and self.form.tool_template is None:
                raise ApiError(
                    "this model has no chat template; send the prompt to /v1/completions",
                    code="chat_template_missing",
                )
            with_tools = bool(variables.get("tools")) and self.form.tool_template is not None
            if self.form.template is None and not with_tools:
                raise ApiError("this model has a chat template for tools only; send tools")
            name = "tool_use" if with_tools else "default"
            try:
                async with asyncio.timeout(self._seconds):
                    result = await self._exchange({"template": name, "variables": variables})
            except (TimeoutError, OSError, EOFError, ValueError):
                await self._restart()
                raise ApiError(
                    f"the chat template took more than {self._seconds:g} s or too much memory; "
                    "send a shorter conversation"
                ) from None
            except asyncio.CancelledError:
                # Otherwise the next conversation would get the result of this one.
                await self._restart()
                raise
        if "error" in result:
            raise ApiError(
                f"the chat template refuses the messages: {result['error']}", param="messages"
            )
        if not result["text"]:
            raise ApiError("the chat template gives an empty prompt; send text", param="messages")
        return str(result["text"])

    async def close(self) -> None:
        """End the process."""
        await self._end()

    async def _exchange(self, value: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise EOFError
        process.stdin.write(json.dumps(value).encode() + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise EOFError
        result: dict[str, Any] = json.loads(line)
        return result

    async def _restart(self) -> None:
        await self._end()
        await self.start()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
