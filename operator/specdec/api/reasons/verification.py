"""Reasons of the three conditions that the verification Job measures."""

from specdec.api.condition_types import VERIFIED, Type
from specdec.api.reasons.definition import Reason, Section

_SHARED = Section(*VERIFIED)
_ACTIVE = Section(Type.SPECULATION_ACTIVE)
_EQUIVALENT = Section(Type.OUTPUT_EQUIVALENT)
_EFFECTIVE = Section(Type.SPECULATION_EFFECTIVE)


class VerificationReason(Reason):
    """Reasons of the three conditions that the verification Job measures."""

    DRAFT_TOKENS_OBSERVED = _ACTIVE.progress(
        "DraftTokensObserved",
        "the Service generates draft tokens; the message has the number of accepted ones",
    )
    NO_DRAFT_TOKENS_OBSERVED = _ACTIVE.blocked(
        "NoDraftTokensObserved",
        "the Service generates no draft tokens",
        "raise `spec.speculation.draftTokens`, or read the server's log and "
        "`specdec_fallback_total`",
    )
    METHOD_NONE = _SHARED.progress(
        "MethodNone", "`spec.speculation.method` is `None`: there is nothing to measure"
    )
    NOT_RUN = _SHARED.progress(
        "NotRun",
        "`spec.verification.mode` (or `spec.benchmark.mode`) is `Disabled`",
        also=(Type.BENCHMARK_COMPLETED,),
    )
    VERIFYING = _SHARED.progress("Verifying", "the verification Job is running", "wait")
    STALE = _SHARED.progress(
        "Stale",
        "the desired revision does not serve yet, so the last measurement does not count",
        "wait until it serves; the operator then repeats the measurement if it is needed",
        also=(Type.BENCHMARK_COMPLETED,),
    )
    NOT_COMPARABLE = _SHARED.progress(
        "NotComparable",
        "the method drafts inside the engine, and no request can turn that off; or the server "
        "does not report draft tokens",
        "if the method drafts inside the engine, compare with a resource of method `None`; if "
        "draft tokens are not reported, set the field in the message",
    )
    SERVER_UNREACHABLE = _SHARED.blocked(
        "ServerUnreachable",
        "the Job could not connect to the Service, or could not establish TLS, in several "
        "attempts",
        "check the pods and the network policies, and with `serving.tls` the names in the "
        "certificate, then delete the Job",
        also=(Type.BENCHMARK_COMPLETED,),
    )
    PROMPTS_INVALID = _SHARED.failed(
        "PromptsInvalid",
        "the ConfigMap of `promptsConfigMapRef`, its key or one of its lines is missing or "
        "invalid",
        "correct the object in the message, then delete the Job",
        also=(Type.BENCHMARK_COMPLETED,),
    )
    VERIFICATION_FAILED = _SHARED.failed(
        "VerificationFailed",
        "the Job failed for another reason",
        "read the end of its log in the message, then delete the Job",
    )
    EQUIVALENT = _EQUIVALENT.progress(
        "Equivalent", "all greedy outputs equal the output of the target alone"
    )
    DIVERGED = _EQUIVALENT.blocked(
        "Diverged",
        "an output differs; the message shows the first difference",
        "check the difference in the message first: on GPUs, another batch can swap two tokens "
        "with nearly equal logits; otherwise check that draft and engines are the intended ones",
    )
    EFFECTIVE = _EFFECTIVE.progress(
        "Effective",
        "the speed reaches `minSpeedupPercent`, and the acceptance rate reaches "
        "`minAcceptancePercent`",
    )
    SLOWER_THAN_BASELINE = _EFFECTIVE.blocked(
        "SlowerThanBaseline",
        "the speed is below `spec.verification.minSpeedupPercent` of the target alone",
        "follow the message, which names what this method can change: the draft, the draft length "
        "or its policy, or another method",
    )
    LOW_ACCEPTANCE = _EFFECTIVE.blocked(
        "LowAcceptance",
        "the acceptance rate is below `spec.verification.minAcceptancePercent`",
        "follow the message, which names what this method can change: the draft, its length, or "
        "another method",
    )
