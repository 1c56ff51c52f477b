"""The image contract: what build Jobs read in the server's image.

It has the TensorRT-LLM release and the names of the request fields in the image. It also counts
the templates and flags that the Jobs compared with those of `runtime.version`. The status stores
the contract, and the repository uses its names of request fields.
"""

from collections.abc import Iterable
from typing import Any

from specdec.pipeline.job_results import ImageContract, parsed
from specdec.pipeline.stage import Context
from specdec.triton.contract import RequestFields


def known(context: Context, read: Iterable[ImageContract | None]) -> ImageContract | None:
    """The contract of the image: from a new build, or else from the status for the same image.

    Each build compares only the flags that it uses. So `flags` is the largest number of flags
    that any build has compared.
    """
    now = [contract for contract in read if contract is not None]
    remembered = _remembered(context)
    if not now:
        return remembered
    most = max(contract.flags for contract in (*now, *([remembered] if remembered else [])))
    warnings = (contract.warning for contract in now if contract.warning)
    return now[0].model_copy(update={"flags": most, "warning": next(warnings, None)})


def request_fields(contract: ImageContract | None) -> RequestFields | None:
    """The names of request fields for the repository; None where no build read them."""
    if contract is None:
        return None
    return RequestFields(contract.request_fields.min_tokens, contract.request_fields.seed)


def warning(contract: ImageContract | None) -> str:
    """The end of a message: the differences that spec.checks.image lets pass."""
    return f"; warning: {contract.warning}" if contract and contract.warning else ""


def shown(context: Context, contract: ImageContract | None) -> dict[str, Any]:
    """The contract as the status has it, with the image; empty where no contract is known."""
    return {} if contract is None else {"image": context.facts.image, **contract.shown()}


def _remembered(context: Context) -> ImageContract | None:
    entry = context.model.status.get("imageContract", {})
    same = entry.get("image") == context.facts.image
    return parsed(ImageContract, entry) if same else None
