"""Resources of backend VLLM on the model pair, which run a real vLLM on the node's processors."""

import os
import signal
from pathlib import Path

from e2e.world import SHARED, Object, merged, source
from support import vllm_node

# A step with drafts computes the same tokens as one without in this type only.
_DTYPE = "Float32"
# The pair has 256 positions, of which drafts may take four more than the sequence.
LENGTH = 252
_TARGET_LIMITS = {"maxBatchSize": 8, "maxSeqLen": LENGTH, "maxNumTokens": 2048}
DRAFT_TARGET: Object = {
    "method": "DraftTarget",
    "maxDraftTokens": 4,
    "draftTarget": {"draft": {"source": source("draft")}},
}
N_GRAM: Object = {"method": "NGram", "maxDraftTokens": 4, "nGram": {"maxMatchingSize": 3}}
# A plan would size the cache for the node's simulated GPU.
_CACHE_TOKENS = 8192


def resource(name: str, speculation: Object | None = None, **spec: Object) -> Object:
    """Return a resource on the target of the pair, merged with `spec`; None removes a field."""
    base: Object = {
        "runtime": {
            "backend": "VLLM",
            "image": vllm_node.IMAGE,
            "arguments": {"enforce_eager": True},
        },
        "target": {
            "source": source("target"),
            "dtype": _DTYPE,
            "limits": _TARGET_LIMITS,
            "kvCache": {"maxTokens": _CACHE_TOKENS},
        },
        "speculation": speculation or {"method": "None"},
        "storage": {"existingClaim": SHARED},
        "serving": {
            **vllm_node.serving(),
            "sharedMemory": "256Mi",
            "drain": {"timeoutSeconds": 10},
            "resources": {"requests": {"cpu": "100m", "memory": "1536Mi"}},
        },
        "verification": {"mode": "Disabled"},
    }
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": name},
        "spec": merged(base, spec),
    }


def kill_engine(pod: Object) -> None:
    """Kill the process of vLLM's engine in a pod, as the kernel does if memory runs out.

    Raises:
        AssertionError: the pod has no such process.
    """
    killed = [pid for pid in _processes(pod["metadata"]["uid"]) if _is_engine(pid)]
    assert killed, f"no engine in {pod['metadata']['name']}"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)


def _processes(uid: str) -> list[int]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            group = (entry / "cgroup").read_text()
        except OSError:
            continue  # The process has ended.
        if uid in group:
            pids.append(int(entry.name))
    return pids


def _is_engine(pid: int) -> bool:
    try:
        return b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
