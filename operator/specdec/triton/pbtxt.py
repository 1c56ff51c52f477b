"""Render a Triton model configuration as protobuf text. No other module writes this format."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from specdec.triton.contract import Step, Tensor

# Protobuf text takes C escapes. Bytes above 0x7e go in as octal, so that the file is plain ASCII
# and no reader has to guess an encoding.
_LITERALS = {byte: f"\\{byte:03o}" for byte in (*range(0x20), *range(0x7F, 0x100))} | {
    ord("\\"): "\\\\",
    ord('"'): '\\"',
    ord("\n"): "\\n",
    ord("\t"): "\\t",
}


@dataclass(frozen=True)
class Batching:
    """Triton's dynamic batcher; with `preferred` None it forms batches by its defaults.

    Every model has one. Without it Triton keeps a payload for each waiting request, and corrupts
    its heap if more than a thousand requests wait. `max_queue_size` is only for a model that
    accepts every request immediately, without waiting for earlier ones. In front of a busy model
    it delays requests by half a second (ADR 0103).
    """

    preferred: int | None = None
    max_queue_delay_us: int = 0
    max_queue_size: int = 0


@dataclass(frozen=True)
class ModelConfig:
    """The contents of one model's `config.pbtxt`.

    The backend of a model chooses its GPUs itself, or the model needs none. A backend that relies
    on Triton to place instances has another kind, for example KIND_GPU.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: tuple[tuple[str, str], ...]
    batching: Batching
    decoupled: bool | None = None
    instances: int = 1
    instance_kind: str = "KIND_CPU"


def quote(value: str) -> str:
    """A string as a protobuf text literal, quotes included.

    Raises:
        ValueError: the string cannot be written as UTF-8 (a lone surrogate).
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string")
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{value!r} is not text: it has half of a character (a lone surrogate) at position "
            f"{error.start}; remove it"
        ) from error
    return f'"{data.decode("latin-1").translate(_LITERALS)}"'


def model(config: ModelConfig) -> str:
    """`config.pbtxt` of a model that a backend runs."""
    return _render("model.pbtxt.j2", model=config)


def ensemble(
    name: str,
    max_batch_size: int,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    steps: tuple[Step, ...],
) -> str:
    """`config.pbtxt` of an ensemble."""
    return _render(
        "ensemble.pbtxt.j2",
        name=name,
        max_batch_size=max_batch_size,
        inputs=inputs,
        outputs=outputs,
        steps=steps,
    )


def _boolean(value: bool) -> str:
    return "true" if value else "false"


@cache
def _environment() -> jinja2.Environment:
    folder = resources.files(__package__).joinpath("config")
    # Not HTML: every string passes the quote filter, and a test sends hostile ones through it.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(quote=quote, boolean=_boolean)
    return environment


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)
