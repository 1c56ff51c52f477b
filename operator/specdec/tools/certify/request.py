"""The options of a run (backend, models, storage and load), and the form of sources.

The command line creates a `CertifyRequest`; `matrix` and `resources` read it. Every error is one
sentence with the option, its value and the fix.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specdec import servers
from specdec.api.matrix import Backend, Support, support
from specdec.api.speculation import Method
from specdec.backends import definition_rules
from specdec.client.errors import BadRequestError

Json = dict[str, Any]
# The methods whose checkpoints only the user can name.
HEADS = (
    *(Method.EAGLE, Method.MEDUSA, Method.RE_DRAFTER, Method.EAGLE3),
    *(Method.D_FLASH, Method.PARD),
)
# A pair with one tokenizer and one vocabulary (151936), in the architecture Qwen2ForCausalLM. Both
# have the licence Apache-2.0 and need no token of the hub.
_PUBLIC = {"target": "Qwen/Qwen2.5-1.5B-Instruct", "draft": "Qwen/Qwen2.5-0.5B-Instruct"}
# The pair in the operator's image, as manifests/samples/reference-pair.yaml copies it.
_SHIPPED = {"target": "pvc:reference-pair/target", "draft": "pvc:reference-pair/draft"}
# The model that the published heads of EAGLE and Medusa were trained for. Its licence is
# non-commercial.
HEADS_TARGET = "lmsys/vicuna-7b-v1.3"
# How the checkpoints of the defaults are stored; other sources get the default of the API, Auto.
DTYPES = {**dict.fromkeys(_PUBLIC.values(), "BFloat16"), HEADS_TARGET: "Float16"}
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_CLAIM = re.compile(r"pvc:([a-z0-9]([-.a-z0-9]*[a-z0-9])?)/([^\s/][^\s]*)")
_QUANTITY = re.compile(r"[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)")


@dataclass(frozen=True, kw_only=True)
class CertifyRequest:
    """The options that decide what is served; a resumed run must have the same ones.

    Attributes:
        backend: of spec.runtime.
        version, image: of spec.runtime; None for the defaults of the release.
        gpu_product: value of the node label; None where the cluster has only one, or no GPUs.
        gpus: GPUs of a node, where the nodes cannot be read.
        target, draft: sources as written.
        heads: source by method.
        heads_target: the target of all heads.
        token_secret: Secret with a hub token under the key `token`.
        claim: an existing claim; None creates one.
        storage_size, storage_class, access_mode: of the created claim.
        prompts: number of prompts of each measurement.
        output_tokens: most tokens of an answer of the load.
    """

    backend: Backend
    version: str | None = None
    image: str | None = None
    gpu_product: str | None = None
    gpus: int | None = None
    target: str = ""
    draft: str = ""
    heads: Mapping[str, str] = field(default_factory=dict)
    heads_target: str = HEADS_TARGET
    token_secret: str | None = None
    claim: str | None = None
    storage_size: str | None = None
    storage_class: str | None = None
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    prompts: int = 16
    output_tokens: int = 64

    def __post_init__(self) -> None:
        row = support(self.backend)
        if self.version is not None and self.version not in row.versions:
            raise BadRequestError(
                f"--version is {self.version}; backend {self.backend} serves "
                f"{', '.join(row.versions)}"
            )
        for option, value in self.sources.items():
            source(option, value)
        for option, count, least, most in (
            ("--prompts", self.prompts, 4, 100),
            ("--output-tokens", self.output_tokens, 8, 128),
            ("--gpus", 1 if self.gpus is None else self.gpus, 1, 64),
        ):
            if not least <= count <= most:
                raise BadRequestError(f"{option} is {count}; set it to {least} to {most}")
        if self.storage_size is not None and not _QUANTITY.fullmatch(self.storage_size):
            raise BadRequestError(
                f"--storage-size is {self.storage_size!r}; write a quantity such as 60Gi"
            )
        if self.claim is not None and (self.storage_size or self.storage_class):
            raise BadRequestError(
                "--claim names an existing claim; leave out --storage-size and --storage-class"
            )

    @property
    def sources(self) -> dict[str, str]:
        """All sources, by the option that names them."""
        own = {"--target": self.model("target"), "--draft": self.model("draft")}
        heads = {f"--heads {method}": value for method, value in self.heads.items()}
        return own | heads | ({"--heads-target": self.heads_target} if heads else {})

    @property
    def claims(self) -> set[str]:
        """The claims that have to exist."""
        sources = (source(option, value) for option, value in self.sources.items())
        used = {item["pvc"]["claimName"] for item in sources if "pvc" in item}
        return used | ({self.claim} if self.claim else set())

    @property
    def support(self) -> Support:
        """What the backend serves."""
        return support(self.backend)

    @property
    def drafts_by_request(self) -> bool:
        """Whether a request to the services can turn drafts off."""
        return servers.kind(self.support.front()).requests.drafts_by_request

    def has(self, feature: str) -> bool:
        """Whether the backend has a feature of `backends/features.yaml`."""
        return definition_rules.has(self.backend, feature)

    @property
    def served_version(self) -> str:
        """The release of the engine whose layout is served."""
        return self.version or self.support.default_version

    @property
    def size(self) -> str:
        """The size of the created claim, for checkpoints and each engine that is built."""
        if self.storage_size is not None:
            return self.storage_size
        if not self.support.on_gpus:
            return "2Gi"
        return "160Gi" if self.heads else "60Gi"

    def model(self, role: str) -> str:
        """The source of the target or the draft, as written."""
        given = self.target if role == "target" else self.draft
        return given or (_PUBLIC if self.support.on_gpus else _SHIPPED)[role]

    def as_json(self) -> Json:
        """The document that a resumed run is compared with."""
        return {
            "backend": str(self.backend),
            "version": self.served_version,
            "image": self.image,
            "gpuProduct": self.gpu_product,
            "target": self.model("target"),
            "draft": self.model("draft"),
            "heads": dict(sorted(self.heads.items())),
            "headsTarget": self.heads_target if self.heads else None,
            "claim": self.claim,
            "accessMode": self.access_mode,
            "prompts": self.prompts,
            "outputTokens": self.output_tokens,
        }


def source(option: str, text: str, token_secret: str | None = None) -> Json:
    """The source of the API for `OWNER/REPO[@REVISION]` or `pvc:CLAIM/PATH`.

    Raises:
        BadRequestError: the text has neither form.
    """
    claim = _CLAIM.fullmatch(text)
    if claim and ".." not in claim[3].split("/"):
        return {"pvc": {"claimName": claim[1], "path": claim[3]}}
    if _REPOSITORY.fullmatch(text):
        repo, _, revision = text.partition("@")
        hub: Json = {"repo": repo}
        if revision:
            hub["revision"] = revision
        if token_secret:
            hub["tokenSecretRef"] = {"name": token_secret}
        return {"huggingFace": hub}
    raise BadRequestError(
        f"{option} is {text!r}; write OWNER/REPO of the Hugging Face hub, or pvc:CLAIM/PATH"
    )


def heads(values: Sequence[str]) -> dict[str, str]:
    """Parse the values of --heads, METHOD=SOURCE; returns the sources by method.

    Upper and lower case of METHOD are the same.

    Raises:
        BadRequestError: a value has another form, or a method twice.
    """
    methods = {method.lower(): str(method) for method in HEADS}
    parsed: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        method = methods.get(name.strip().lower())
        if method is None or not equals or not text:
            raise BadRequestError(
                f"--heads is {value!r}; write METHOD=SOURCE with a method of "
                f"{', '.join(methods.values())}, as in Eagle=yuhuili/EAGLE-Vicuna-7B-v1.3"
            )
        if method in parsed:
            raise BadRequestError(f"--heads names {method} twice; leave one of them out")
        parsed[method] = text
    return parsed
