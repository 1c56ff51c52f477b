"""The parts of the demo in order; `tests/e2e` uses the same parts."""

import json
import shlex
import textwrap
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.processes import DEADLINE_SECONDS, TIMEOUT
from demo.errors import DemoError
from demo.kubectl import Kubectl, wait
from demo.machine import Machine
from demo.progress import Progress, has_failed, is_ready, is_verified, why_not
from demo.screen import Screen
from demo.tools import ROOT
from specdec.client import Answer, Client, Request, metrics

OPERATOR = ("specdec-system", "specdec-operator")
MODEL = "reference-draft-target"
OPENAI, OPENAI_PORT = "reference-openai", 9000
LOOKUP = "reference-ngram"
# Width at which the demo wraps an answer.
_COLUMNS = 96
SAMPLES = ROOT / "manifests" / "samples"
PROMPT = "def read_lines(path):"
_TOKENS = 96


def install(kubectl: Kubectl) -> None:
    """Install CRD, roles and operator; wait until the operator runs its current image."""
    namespace, name = OPERATOR
    before = kubectl.get("deployment", name, "-n", namespace) if _has_namespace(kubectl) else None
    kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / "install"))
    # Wait for the names first: `kubectl wait` fails while the conditions are null, and the API
    # server sets both together.
    for condition in (
        "jsonpath={.status.acceptedNames.kind}=SpeculativeModel",
        "condition=Established",
    ):
        kubectl("wait", "crd/speculativemodels.specdec.dev", f"--for={condition}", TIMEOUT)
    if before is not None:
        # A rebuilt image has the same tag, so only a restart starts it.
        kubectl("rollout", "restart", f"deployment/{name}", "-n", namespace)
    command = ("rollout", "status", f"deployment/{name}", "-n", namespace)
    try:
        kubectl(*command, TIMEOUT)
    except DemoError as error:
        raise DemoError(f"the operator does not start: {_pods(kubectl, namespace)}") from error


def seed_pair(kubectl: Kubectl) -> None:
    """Create the claim with the tiny model pair; wait until it holds both checkpoints."""
    # A kept cluster may have the Job of an earlier version, whose template cannot change.
    kubectl("delete", "job", "reference-pair", "--ignore-not-found")
    kubectl("apply", "-f", str(SAMPLES / "reference-pair.yaml"))
    try:
        command = ("wait", "job/reference-pair", "--for=condition=Complete")
        kubectl(*command, TIMEOUT)
    except DemoError as error:
        raise DemoError(f"the model pair was not copied: {_pods(kubectl, 'default')}") from error


def follow(
    kubectl: Kubectl,
    screen: Screen,
    model: str,
    seconds: float = DEADLINE_SECONDS,
    progress: Progress | None = None,
    done: Callable[[Mapping[str, Any]], bool] = is_ready,
) -> None:
    """Show all changes of a resource's conditions until `done` holds (default: it is served).

    Raises:
        DemoError: it failed, or was not served within `seconds`; names the failing stage.
    """
    shown, last = progress or Progress(), None
    for last in kubectl.watch("speculativemodel", model, seconds=seconds):
        for step in shown.changes(last):
            screen.step(step)
        if done(last):
            return
        if has_failed(last):
            raise DemoError(f"{model} will not be served: {why_not(last)}")
    raise DemoError(f"{model} was not served within {seconds:g} s: {why_not(last)}")


def ask(kubectl: Kubectl, screen: Screen, model: str, prompt: str = PROMPT) -> Answer:
    """Stream a continuation through `tensorrt_llm_bls` and compare it with `ensemble`."""
    with kubectl.forward(f"service/{model}", 8001, 8002) as ports:
        grpc, http = f"localhost:{ports[8001]}", f"localhost:{ports[8002]}"
        before = metrics.read(http)
        with Client(grpc) as client:
            screen.prompt(prompt)
            answer, began = Answer(), time.monotonic()
            for chunk in client.generate(Request(prompt, max_tokens=_TOKENS)):
                screen.chunk(chunk.text, answer.chunks)
                answer = answer.add(chunk, time.monotonic() - began)
            did = settled(http, before)
            plain = client.ask(Request(prompt, model="ensemble", max_tokens=_TOKENS, stream=False))
        screen.summary(answer, did, equal=plain.text == answer.text)
    if plain.text != answer.text:
        raise DemoError("the speculative answer is not that of the target alone; this is a bug")
    return answer


def settled(http: str, before: metrics.SpeculationTotals) -> metrics.SpeculationTotals:
    """Return the counts of the request, which the server publishes shortly after the answer."""
    seen: list[metrics.SpeculationTotals] = []

    def still() -> bool:
        seen.append(metrics.read(http) - before)
        return len(seen) > 1 and seen[-1] == seen[-2] and seen[-1].rounds > 0

    wait(still, lambda: f"the server counts no rounds at {http}/metrics", step=0.5)
    return seen[-1]


def ask_openai(kubectl: Kubectl, screen: Screen) -> None:
    """Request a chat completion from the OpenAI endpoint, and show the call and its answer.

    Raises:
        DemoError: the endpoint gave no answer, or one without accepted draft tokens.
    """
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "def read_lines(path):"}],
        "max_completion_tokens": 24,
        "include_metrics": True,
    }
    with kubectl.forward(f"service/{OPENAI}", OPENAI_PORT) as ports:
        url = f"http://localhost:{ports[OPENAI_PORT]}/v1/chat/completions"
        header = "content-type: application/json"
        command = ["curl", "-s", url, "-H", header, "-d", json.dumps(body)]
        screen.block([shlex.join(command)])
        name, _, value = header.partition(": ")
        request = urllib.request.Request(url, json.dumps(body).encode(), {name: value})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as reply:
                answer = json.load(reply)
        except (OSError, ValueError) as error:
            raise DemoError(f"the OpenAI endpoint of {OPENAI} gave no answer: {error}") from error
    screen.block(textwrap.wrap(json.dumps(answer), _COLUMNS, break_on_hyphens=False))
    counts = answer["metrics"]["speculative_decoding"]
    if not counts["num_accepted_draft_tokens"]:
        raise DemoError(f"the answer of {OPENAI} has no accepted draft tokens: {counts}")


def show_next_steps(machine: Machine, screen: Screen) -> None:
    """Print commands that inspect the demo and remove it."""
    explore(
        machine,
        screen,
        (MODEL, OPENAI, LOOKUP),
        [
            "kubectl get events --sort-by=.metadata.creationTimestamp",
            f"kubectl get jobs,pods,services -l specdec.dev/model={MODEL}",
            f"kubectl logs deployment/{MODEL}",
            f"kubectl logs -n {OPERATOR[0]} deployment/{OPERATOR[1]}",
            f"kubectl apply -f {SAMPLES.relative_to(ROOT)}/reference-lookahead.yaml",
            f"kubectl port-forward service/{MODEL} 8001 &",
            ".venv/bin/specdec generate --url localhost:8001 --prompt 'class Reader:'",
        ],
    )


def explore(
    machine: Machine, screen: Screen, models: Sequence[str], commands: Sequence[str]
) -> None:
    """Print `commands`, which inspect the first of the models, and how to remove all."""
    kubectl = machine.kubectl()
    screen.heading("Explore")
    screen.block(
        [
            f"export KUBECONFIG={kubectl.environment['KUBECONFIG']}",
            f"alias kubectl={kubectl.program}",
            "kubectl get specm",
            f"kubectl describe specm {models[0]}",
            *commands,
        ]
    )
    screen.heading("Remove it")
    screen.block([f"kubectl delete specm {' '.join(models)}", "make demo-down"])


def run(machine: Machine, screen: Screen) -> None:
    """Run the whole demo, without the commands to try next."""
    with screen.part("Cluster"):
        machine.up()
    with screen.part("Images"):
        machine.build()
    screen.cut()
    kubectl = machine.kubectl()
    with screen.part("Operator"):
        install(kubectl)
    with screen.part("Model pair"):
        seed_pair(kubectl)
    progress = Progress()
    with screen.part(f"SpeculativeModel {MODEL}"):
        kubectl("apply", "-f", str(SAMPLES / f"{MODEL}.yaml"))
        follow(kubectl, screen, MODEL, progress=progress)
    # Wait for it: otherwise its requests count among those of the demo.
    with screen.part("Verification"):
        follow(kubectl, screen, MODEL, progress=progress, done=is_verified)
    screen.heading("Answer: prompt in bold, each chunk is what one round accepted")
    ask(kubectl, screen, MODEL)
    screen.heading("The same models by the OpenAI API")
    with screen.part(f"SpeculativeModel {OPENAI}"):
        kubectl("apply", "-f", str(SAMPLES / f"{OPENAI}.yaml"))
        follow(kubectl, screen, OPENAI)
    ask_openai(kubectl, screen)
    screen.heading("The target without a draft model: lookups in prompt and answer")
    with screen.part(f"SpeculativeModel {LOOKUP}"):
        kubectl("apply", "-f", str(SAMPLES / f"{LOOKUP}.yaml"))
        follow(kubectl, screen, LOOKUP, done=is_verified)
    screen.console.print(
        "\n  Tiny models on a CPU: they show that the pieces work together and lose nothing, not "
        "that\n  they are fast.",
        style="dim",
    )


def _has_namespace(kubectl: Kubectl) -> bool:
    return kubectl.get("namespace", OPERATOR[0]) is not None


def _pods(kubectl: Kubectl, namespace: str) -> str:
    """Return the message of a pod in the namespace that explains why it is not ready."""
    pods: list[dict[str, Any]] = (kubectl.get("pods", "-n", namespace) or {}).get("items", [])
    for pod in reversed(pods):
        for status in pod["status"].get("containerStatuses", []):
            for state in (status["state"], status.get("lastState", {})):
                outcome = state.get("waiting") or state.get("terminated") or {}
                if message := outcome.get("message") or outcome.get("reason"):
                    return f"pod {pod['metadata']['name']}: {message}"
        for condition in pod["status"].get("conditions", []):
            if condition["status"] == "False" and condition.get("message"):
                return f"pod {pod['metadata']['name']}: {condition['message']}"
    return "no pod reports a reason; see `kubectl get events -A`"


def prompts(count: int) -> list[str]:
    """Return held-out prompts that ship with the pair."""
    file = Path(ROOT, "operator/specdec/images/pair/prompts.jsonl")
    lines = file.read_text(encoding="utf-8").splitlines()[:count]
    return [json.loads(line)["prompt"] for line in lines]
