"""A first manifest for a target, from the catalogue of published pairs.

It is pure. A size that a name does not show has a comment about it.
"""

import math
import re
from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from specdec.api import catalog
from specdec.api.catalog import Pair
from specdec.api.matrix import matrix, support
from specdec.api.speculation import Method
from specdec.tools.dry_run.resource import InputError

_PRODUCT = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
# `70B`, `8x7B` and `0.6B` in a name.
_BILLIONS = re.compile(r"(?<![A-Za-z\d])(?:(\d+)x)?(\d+(?:\.\d+)?)B(?![A-Za-z])", re.IGNORECASE)
# Bytes of a parameter by a part of a name; 16 bits otherwise.
_BYTES = {
    **dict.fromkeys(("fp8", "int8", "w8a8"), 1.0),
    **dict.fromkeys(("nvfp4", "awq", "w4a16", "gpt-oss"), 0.6),
}
# Beside the weights of the target: tokenizers, draft and repositories.
_SPARE, _UNKNOWN_GIB = 1.2, 200
_CHARACTERS = 40
_LOOKUP_TOKENS = 5


def manifest(target: str, backend: str, product: str) -> str:
    """The manifest as YAML with comments.

    Raises:
        InputError: the target is no repository, the backend is unknown, or the product no label.
    """
    if not _REPOSITORY.fullmatch(target):
        raise InputError(f"{target} is not a repository of the hub: name it as owner/name")
    if not _PRODUCT.fullmatch(product):
        raise InputError(f"--product {product!r} is not the value of a label: copy it from a node")
    able = [name for name, row in matrix().items() if row.on_gpus]
    if backend not in able:
        raise InputError(f"--backend {backend}: give {', '.join(able[:-1])} or {able[-1]}")
    known = catalog.of(target)
    pair = next((pair for pair in known if backend in pair.backends), None)
    lines = [
        *_introduction(target, pair),
        "apiVersion: specdec.dev/v1alpha1",
        "kind: SpeculativeModel",
        "metadata:",
        f"  name: {_name(target)}",
        "spec:",
        "  runtime:",
        f"    backend: {backend}",
        "  gpu:",
        "    # The node label nvidia.com/gpu.product. Servers run only on these nodes.",
        f"    product: {product}",
        "  target:",
        "    source:",
        "      huggingFace:",
        f"        repo: {pair.target if pair else target}",
        "        # For a gated repository: a Secret with an access token under the key token.",
        "        # tokenSecretRef: {name: hugging-face}",
        "    # GPUs of each pod.",
        "    # parallelism: {tensor: 2}",
        *_speculation(pair, backend),
        *(_others(known, pair) if known else ()),
        "  storage:",
        *_storage(target),
    ]
    return "\n".join(lines) + "\n"


def _introduction(target: str, pair: Pair | None) -> Iterator[str]:
    if pair is None:
        yield f"# {target}. No draft is known for it on this backend: the text itself drafts."
        return
    draft = pair.repository or "layers of its own checkpoint"
    yield f"# {pair.target} with method {pair.method}: {draft}."
    yield f"# Named by {pair.source}, read on {pair.checked}."
    if pair.result:
        yield f"# Measured there: {pair.result}."
    if pair.repository:
        yield f"# Licence of the draft or heads: {pair.licence or 'see its page'}."


def _speculation(pair: Pair | None, backend: str) -> Iterator[str]:
    yield "  speculation:"
    if pair is None:
        lookup = Method.N_GRAM
        serves = any(support(backend).serves(lookup, v) for v in support(backend).versions)
        yield f"    method: {lookup if serves else Method.NONE}"
        if serves:
            yield f"    maxDraftTokens: {_LOOKUP_TOKENS}"
        return
    yield f"    method: {pair.method}"
    if tokens := catalog.tokens(pair, backend):
        yield "    # Draft tokens of a step; more pay off where most are accepted."
        yield f"    maxDraftTokens: {tokens}"
    if pair.repository is None:
        return
    keys = (to_camel(Method(pair.method).key), *catalog.place(pair.method), "huggingFace")
    for depth, key in enumerate(keys, start=2):
        yield f"{'  ' * depth}{key}:"
    yield f"{'  ' * (len(keys) + 2)}repo: {pair.repository}"


def _others(known: tuple[Pair, ...], used: Pair | None) -> Iterator[str]:
    """Comments with the pairs that were not taken."""
    others = [pair for pair in known if pair != used]
    if others:
        yield "    # Also published for this target:"
    for pair in others:
        draft = pair.repository or "in the target"
        yield f"    # {pair.method}: {draft} ({', '.join(pair.backends)})"


def _storage(target: str) -> Iterator[str]:
    """The size of the claim, from the number of parameters in the name."""
    stated = _BILLIONS.search(target)
    if stated is None:
        yield "    # The name does not show the size of the weights: set what their page states."
        yield f"    size: {_UNKNOWN_GIB}Gi"
        return
    billions = int(stated[1] or 1) * float(stated[2])
    each = next((size for part, size in _BYTES.items() if part in target.lower()), 2.0)
    size = math.ceil(billions * each * _SPARE / 10 + 1) * 10
    yield f"    # For {stated[0]} parameters of {8 * each:g} bits, the draft and repositories."
    yield f"    size: {size}Gi"


def _name(target: str) -> str:
    """A name of a resource from the repository."""
    own = re.sub(r"[^a-z0-9]+", "-", target.partition("/")[2].lower())[:_CHARACTERS].strip("-")
    return own if own[:1].isalpha() else f"model-{own}"
