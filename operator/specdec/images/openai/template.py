"""The client of the process that renders chat templates."""

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from specdec.images.openai.body import encoded
from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.errors import ApiError, unavailable
from specdec.images.openai.limits import WAITING_CHATS, WAITING_SECONDS
from specdec.images.openai.off_loop import off_loop
from specdec.images.openai.turns import Turns

# Of processor time, which the process itself limits.
SECONDS = 2
# Of real time. On a busy node a short conversation too may take longer than its processor time.
_REAL_SECONDS = 15
CHARACTERS = 4 << 20
_PROGRAM = "specdec.images.openai.template_process"
_START_SECONDS = 30
# If the client of a chat has left, its rendering may still take this long: most end earlier, and a
# new process takes longer to start.
_LEFT_SECONDS = 0.1
# The longest line of the pipe: a prompt in JSON, where a character has at most twelve bytes.
_LINE_BYTES = 12 * CHARACTERS + 1024


class TemplateStartError(Exception):
    """The chat template cannot be used; the message names the cause."""


class Templates:
    """Renders the prompts of chats, one at a time.

    The process is replaced when a template exceeds its time, or if the client has left. Without a
    template, every chat is an error.
    """

    def __init__(
        self, form: ChatFormat, seconds: float = SECONDS, characters: int = CHARACTERS
    ) -> None:
        self.form = form
        self._seconds, self._characters = seconds, characters
        self._process: asyncio.subprocess.Process | None = None
        self._turns = Turns(WAITING_CHATS, WAITING_SECONDS)

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
                result = await self._exchange(encoded(setup))
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            await self._end()
            limit = (
                f"was not compiled within {_START_SECONDS} s"
                if isinstance(error, TimeoutError)
                else f"takes more than {self._seconds:g} s of processor time, or too much memory, "
                "to compile"
            )
            raise TemplateStartError(
                f"the chat template {limit}; name another file with --chat-template"
            ) from error
        if "error" in result:
            await self._end()
            raise TemplateStartError(
                f"the chat template has an error ({result['error']}); "
                "name another file with --chat-template"
            )

    async def render(self, variables: Mapping[str, Any], size: int = 0) -> str:
        """Render a conversation.

        Args:
            variables: of the template.
            size: of the request's body, in bytes.

        Raises:
            ApiError: there is no template, it refuses the conversation, it exceeds a limit, too
                many chats wait for it, or its process gets no processor time.
        """
        name = self._name(variables)
        line = await off_loop(size, encoded, {"template": name, "variables": variables})
        async with self._turns.turn(size):
            result = await self._rendered(line)
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

    def _name(self, variables: Mapping[str, Any]) -> str:
        """The name of the template for a conversation."""
        if self.form.template is None and self.form.tool_template is None:
            raise ApiError(
                "this model has no chat template; send the prompt to /v1/completions",
                code="chat_template_missing",
            )
        with_tools = bool(variables.get("tools")) and self.form.tool_template is not None
        if self.form.template is None and not with_tools:
            raise ApiError("this model has a chat template for tools only; send tools")
        return "tool_use" if with_tools else "default"

    async def _rendered(self, line: bytes) -> dict[str, Any]:
        """The result of the process, which is replaced if it has none in time."""
        work = asyncio.ensure_future(self._exchange(line))
        try:
            # The waiting does not cancel the work, so that its result is not left in the pipe.
            await asyncio.wait((work,), timeout=_REAL_SECONDS)
            if work.done():
                return work.result()
        except (OSError, EOFError, ValueError):
            await self._replace(work)
            raise ApiError(
                f"the chat template took more than {self._seconds:g} s of processor time or too "
                "much memory; send a shorter conversation"
            ) from None
        except asyncio.CancelledError:
            await asyncio.wait((work,), timeout=_LEFT_SECONDS)
            if not work.done() or work.exception() is not None:
                await self._replace(work)
            raise
        await self._replace(work)
        raise unavailable(
            f"the chat template gave no prompt within {_REAL_SECONDS} s; try again later"
        )

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise EOFError
        process.stdin.write(line + b"\n")
        await process.stdin.drain()
        reply = await process.stdout.readline()
        if not reply:
            raise EOFError
        result: dict[str, Any] = await off_loop(len(reply), json.loads, reply)
        return result

    async def _replace(self, work: "asyncio.Future[Any]") -> None:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await self._end()
        await self.start()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
