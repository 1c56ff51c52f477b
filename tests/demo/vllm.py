"""`make demo BACKEND=VLLM`: a real vLLM with and without the draft, and their measured speed."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.errors import DemoError
from demo.kubectl import Kubectl
from demo.machine import Machine, Node
from demo.progress import is_measured, is_ready, is_verified
from demo.screen import Screen
from demo.story import PROMPT, explore, follow, install, seed_pair, settled
from specdec.client import Answer, Client, Request, metrics
from specdec.triton.model_names import VLLM
from support import vllm_node, vllm_wheel

PLAIN, DRAFT = "vllm-plain", "vllm-draft-target"
_FILES = Path(__file__).parent
_TOKENS = 96


def run(machine: Machine, screen: Screen) -> None:
    """Run the whole demo, without the commands to try next.

    Raises:
        DemoError: the cluster is not the local node, or a part failed.
    """
    if not isinstance(machine, Node):
        raise DemoError(
            "BACKEND=VLLM mounts files of this machine into its pods, and nodes of kind do not "
            "have them: leave out CLUSTER=kind, and run it as root",
            exit_status=2,
        )
    with screen.part("Cluster"):
        machine.up()
    with screen.part("vLLM for CPUs, a build of a third party"):
        volume = _volume(screen)
    with screen.part("Images"):
        machine.build()
        machine.build_vllm()
        machine.offer_gpus(2)
    screen.cut()
    kubectl = machine.kubectl()
    with screen.part("Operator"):
        install(kubectl)
    with screen.part("Model pair"):
        seed_pair(kubectl)
        kubectl("apply", "-f", "-", given=json.dumps(volume))
    for name, done in ((PLAIN, is_ready), (DRAFT, is_verified)):
        with screen.part(f"SpeculativeModel {name}"):
            kubectl("apply", "-f", str(_FILES / f"{name}.yaml"))
            follow(kubectl, screen, name, done=done)
    screen.heading("Answer: prompt in bold, each chunk is what one step of vLLM accepted")
    ask(kubectl, screen)
    screen.heading("One client, with the draft and without it")
    with screen.part("Benchmark"):
        follow(kubectl, screen, DRAFT, done=is_measured)
    compare(kubectl.get("specm", DRAFT) or {}, screen)


def _volume(screen: Screen) -> dict[str, Any]:
    """Install vLLM if needed, after a message with its size; return its volume and claim."""
    try:
        installation = vllm_wheel.install(report=screen.report)
    except vllm_wheel.VllmError as error:
        raise DemoError(str(error), exit_status=2) from error
    return {"apiVersion": "v1", "kind": "List", "items": vllm_node.volume(installation)}


def ask(kubectl: Kubectl, screen: Screen) -> None:
    """Stream a continuation with the draft, and compare it with the target alone.

    Raises:
        DemoError: the two answers differ.
    """
    with kubectl.forward(f"service/{DRAFT}", 8001, 8002) as ports:
        metrics_url = f"localhost:{ports[8002]}"
        before = metrics.read(metrics_url)
        screen.prompt(PROMPT)
        with Client(f"localhost:{ports[8001]}") as client:
            answer, began = Answer(), time.monotonic()
            for chunk in client.generate(Request(PROMPT, VLLM, max_tokens=_TOKENS)):
                screen.chunk(chunk.text, answer.chunks)
                answer = answer.add(chunk, time.monotonic() - began)
        did = settled(metrics_url, before)
    with (
        kubectl.forward(f"service/{PLAIN}", 8001) as ports,
        Client(f"localhost:{ports[8001]}") as client,
    ):
        plain = client.ask(Request(PROMPT, VLLM, max_tokens=_TOKENS, stream=False))
    screen.summary(answer, did, equal=plain.text == answer.text)
    if plain.text != answer.text:
        raise DemoError("the answer with the draft is not that of the target alone; this is a bug")


def compare(model: Mapping[str, Any], screen: Screen) -> None:
    """Show the result of the benchmark of a resource.

    Raises:
        DemoError: the benchmark failed.
    """
    result = model["status"].get("benchmark", {})
    if result.get("state") != "Completed":
        raise DemoError(f"the benchmark of {DRAFT} failed: {result.get('message', 'no result')}")
    (level,) = result["levels"]
    plain, draft = level["baseline"], level["speculative"]
    screen.rows(
        [
            ("target alone", f"{plain['tokensPerSecond']} tokens/s"),
            ("with the draft", f"{draft['tokensPerSecond']} tokens/s"),
            ("draft tokens accepted", f"{level['acceptancePercent']} %"),
            ("speed with the draft", f"{level['speedupPercent']} % of the target alone"),
        ]
    )


def show_next_steps(machine: Machine, screen: Screen) -> None:
    """Print commands that inspect the demo and remove it."""
    explore(
        machine,
        screen,
        (DRAFT, PLAIN),
        [
            f"kubectl logs deployment/{DRAFT}",
            f"kubectl port-forward service/{DRAFT} 8001 &",
            f".venv/bin/specdec generate --url localhost:8001 --model {VLLM} "
            "--prompt 'class Reader:'",
        ],
    )
