"""Reach a resource's service: `--url specm/NAME` forwards its port with kubectl."""

import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from specdec.client.errors import BadRequestError, ClientError, UnreachableError
from specdec.tools.cli import kubectl
from specdec.tools.cli.cluster_options import check_name
from specdec.tools.cli.kubectl import PREFIX
from specdec.tools.cli.options import Protocol

_ADDRESS = re.compile(r"specm/(?P<name>[^:/]+)(:(?P<port>[0-9]{1,5}))?(?P<path>/v1)?")
# Ports of a service by what listens on them.
_GRPC, _HTTP, _METRICS, _OPENAI = 8001, 8000, 8002, 9000
_FORWARDING = re.compile(r"Forwarding from (?:127\.0\.0\.1|\[::1\]):([0-9]+) ")
# kubectl must get the time to close its connection; then it is killed.
_STOP_SECONDS = 5.0
_SERVER_ERROR = re.compile(r"^Error from server \([A-Za-z]+\): ")
# How many names to suggest if a name does not exist.
_MAX_SUGGESTIONS = 8


@contextmanager
def forwarded(params: Mapping[str, Any], *options: str) -> Iterator[dict[str, Any]]:
    """The options of a command, with each `specm/NAME` replaced by a forwarded local port.

    The ports are forwarded until the context ends.

    Args:
        params: all options of the command.
        options: the names of those that are addresses.

    Raises:
        BadRequestError: an address is malformed, there is no such resource, or no kubectl.
        UnreachableError: kubectl cannot forward the port.
    """
    check_name("--namespace", params["namespace"])
    with ExitStack() as stack:
        addresses = {
            option: stack.enter_context(_forward(params, option, params[option]))
            for option in options
            if str(params[option]).startswith(PREFIX)
        }
        yield {**params, **addresses}


def read_resource(params: Mapping[str, Any], address: str) -> dict[str, Any] | None:
    """The resource of `specm/NAME`; None for another address, or if it cannot be read."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return None
    command = ["get", "specm", match["name"], "-o", "json"]
    done = subprocess.run(
        kubectl.command(params, *command), capture_output=True, text=True, check=False
    )
    try:
        body = json.loads(done.stdout)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


@contextmanager
def _forward(params: Mapping[str, Any], option: str, address: str) -> Iterator[str]:
    flag = f"--{option.replace('_', '-')}"
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise BadRequestError(
            f"{flag} is {address!r}; write specm/NAME, specm/NAME:PORT, or specm/NAME/v1 for its "
            "OpenAI endpoint"
        )
    check_name(flag, match["name"])
    port = int(match["port"] or _default_port(params, option, openai=bool(match["path"])))
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = _start(params, match["name"], port, errors)
        try:
            local = _local_port(process)
            if local is None:
                process.wait()
                errors.seek(0)
                raise _failure(params, match["name"], port, _reason(errors.read()))
            yield f"http://localhost:{local}/v1" if match["path"] else f"localhost:{local}"
        finally:
            _stop(process)


def _default_port(params: Mapping[str, Any], option: str, *, openai: bool) -> int:
    if option.startswith("metrics"):
        return _METRICS
    if openai:
        return _OPENAI
    return _HTTP if params.get("protocol") is Protocol.HTTP else _GRPC


def _start(
    params: Mapping[str, Any], name: str, port: int, errors: IO[str]
) -> "subprocess.Popen[str]":
    if shutil.which("kubectl") is None:
        raise BadRequestError(
            f"there is no kubectl on PATH to reach {PREFIX}{name}; install it, or forward the "
            f"port in another way and set the address, for example localhost:{port}"
        )
    return subprocess.Popen(
        kubectl.command(params, "port-forward", f"service/{name}", f":{port}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


def _local_port(process: "subprocess.Popen[str]") -> int | None:
    """The local port that kubectl reports; None if it ends without one."""
    assert process.stdout is not None  # noqa: S101 -- it is a pipe
    for text in process.stdout:
        if match := _FORWARDING.match(text):
            # kubectl prints a line for each connection, and would stop when the pipe is full.
            threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
            return int(match[1])
    process.stdout.close()
    return None


def _drain(lines: IO[str]) -> None:
    with lines:
        deque(lines, 0)


def _failure(params: Mapping[str, Any], name: str, port: int, reason: str) -> ClientError:
    """Why a port is not forwarded: there is no such resource, or the message of kubectl."""
    if "(NotFound)" not in reason:
        reason = _SERVER_ERROR.sub("", reason)
        return UnreachableError(f"kubectl cannot forward port {port} of service {name}: {reason}")
    where = (
        f"namespace {params['namespace']}" if params["namespace"] else "the context's namespace"
    )
    done = subprocess.run(
        kubectl.command(params, "get", "specm", "-o", "name"),
        capture_output=True,
        text=True,
        check=False,
    )
    names = [line.rpartition("/")[2] for line in done.stdout.split()]
    if name in names:
        return UnreachableError(
            f"SpeculativeModel {name} has no Service yet: specdec status {name} shows its stage"
        )
    if done.returncode:
        return UnreachableError(f"there is no Service {name} in {where}: check name and namespace")
    has = f"it has {', '.join(names[:_MAX_SUGGESTIONS])}" if names else "it has none"
    return BadRequestError(f"there is no SpeculativeModel {name} in {where}: {has}")


def _reason(errors: str) -> str:
    """The last line of kubectl's errors."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it ended without a message"


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
