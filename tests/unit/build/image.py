"""A TensorRT-LLM image for tests: a folder with the image's programs, and builds that use it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.processes import DEADLINE_SECONDS
from specdec.backends.tensorrt.image import expectations
from support.image_tree import MODELS, SCRIPTS, openai, package, script, template

BUILD = (
    Path(__file__).resolve().parents[3] / "operator/specdec/images/build/build_engine.py"
).resolve()
RECORDER = Path(__file__).with_name("recorder.py")
# Folders with scripts: in a Triton image, and in an image that is built like NVIDIA's releases.
FOLDERS = ("examples", "tensorrt_llm/examples")
TEMPLATES = "all_models/inflight_batcher_llm"


@dataclass
class Image:
    """An image with a volume: checkpoints under `root`, engines under `root/engines`.

    With `checked`, builds check the image first; `renamed` selects the newer request fields.
    """

    root: Path
    version: str = "0.18.0"
    scene: dict[str, Any] = field(default_factory=dict)
    folder: str = FOLDERS[0]
    checked: bool = False
    renamed: bool = False

    def __post_init__(self) -> None:
        (self.root / "bin").mkdir(parents=True, exist_ok=True)
        python = self.root / "bin" / "python3"
        if not python.exists():
            python.symlink_to(sys.executable)
        self._install(self.root / "bin" / "trtllm-build", "trtllm-build")
        for place, program in SCRIPTS[self.version].items():
            self._install(self.root / self.folder / place, program)
        if self.checked:
            self._describe()
        for name in ("base", "heads"):
            (self.root / name).mkdir(exist_ok=True)
        self.checkpoint("LlamaForCausalLM")

    def _describe(self) -> None:
        """Add templates, a package and expectations, which a check reads beside the scripts."""
        for model in MODELS:
            path = self.root / TEMPLATES / model / "config.pbtxt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(template(model, self.version, renamed=self.renamed), "utf-8")
        package(self.root / "site", self.version)
        openai(self.root / "site", "1.109.1")
        expected = {**expectations(self.version), "templates": [str(self.root / TEMPLATES)]}
        (self.root / "image.json").write_text(json.dumps(expected), encoding="utf-8")

    def _install(self, path: Path, program: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (
            f"#!{sys.executable}",
            "import runpy, sys",
            f"sys.argv[:1] = [{str(RECORDER)!r}, {program!r}]",
            f"runpy.run_path({str(RECORDER)!r}, run_name='__main__')",
            "sys.exit()",
            # Only the check reads these lines; the recorder parses its arguments itself.
            *(script(program).splitlines() if self.checked else ()),
        )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.chmod(0o755)

    def checkpoint(self, architecture: str, **more: Any) -> None:
        config = {"architectures": [architecture], "torch_dtype": "bfloat16", **more}
        (self.root / "base" / "config.json").write_text(json.dumps(config), encoding="utf-8")

    @property
    def output(self) -> Path:
        return self.root / "engines" / "k1"

    def plan(self, **changes: Any) -> dict[str, Any]:
        """Return the plan of an engine without speculation; `changes` replace its members."""
        engine = {
            "pagedContextFmha": True,
            "fp8ContextFmha": False,
            "plugins": {"gemm": "auto", "gptAttention": None, "lowLatencyGemm": None},
            "workers": None,
            "gatherGenerationLogits": False,
            "extraArgs": {},
        }
        return {
            "backend": "TensorRT",
            "role": "target",
            "checkpoint": str(self.root / "base"),
            "heads": None,
            "output": str(self.output),
            "key": "k1",
            "version": self.version,
            "gpuProduct": "NVIDIA-H100-80GB-HBM3",
            "architecture": "LlamaForCausalLM",
            "dtype": "auto",
            "quantization": {
                "method": "None",
                "kvCache": "Auto",
                "calibration": {"dataset": None, "samples": 512},
            },
            "tensorParallel": 1,
            "pipelineParallel": 1,
            "limits": {
                "maxBatchSize": 8,
                "maxInputLen": 1024,
                "maxSeqLen": 2048,
                "maxNumTokens": 8192,
            },
            "maxDraftTokens": 0,
            "speculativeDecodingMode": "none",
            "eagle": None,
            "medusa": None,
            "reDrafter": None,
            "lookahead": None,
            "examples": [str(self.root / folder) for folder in FOLDERS],
            **changes,
            "engine": engine | changes.get("engine", {}),
        }

    def environment(self) -> dict[str, str]:
        return {
            "PATH": str(self.root / "bin"),
            "PYTHONPATH": str(self.root / "site"),
            "RECORD": str(self.root / "record"),
            "SCENE": json.dumps(self.scene),
            "SPECDEC_TERMINATION_LOG": str(self.root / "termination.json"),
        }

    def start(self, plan: dict[str, Any]) -> subprocess.Popen[str]:
        path = self.root / "plan.json"
        path.write_text(json.dumps(plan), encoding="utf-8")
        return subprocess.Popen(
            # -S hides installed packages, because an image for TensorRT lacks our packages and
            # NumPy.
            [
                *(sys.executable, "-S", str(BUILD), "--plan", str(path)),
                *(("--image", str(self.root / "image.json")) if self.checked else ()),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
        )

    def build(self, plan: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Run a build to its end, and return its termination message and its output."""
        (self.root / "termination.json").unlink(missing_ok=True)
        process = self.start(plan)
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        assert "Traceback" not in output, output
        message = json.loads((self.root / "termination.json").read_text(encoding="utf-8"))
        assert process.returncode == (0 if "engine" in message else 1)
        return message, output

    def refused(self, plan: dict[str, Any]) -> tuple[str, str]:
        """Run a build that must fail, and return reason and message of its error."""
        error = self.build(plan)[0]["error"]
        assert "\n" not in error["message"]
        assert not self.output.exists()
        return error["reason"], error["message"]

    def runs(self) -> list[dict[str, Any]]:
        """Return program and arguments of every run so far."""
        path = self.root / "record"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def programs(self) -> list[str]:
        return [run["program"] for run in self.runs()]

    def arguments(self, program: str) -> dict[str, str]:
        """Return the flags of a program's last run."""
        last = [run["arguments"] for run in self.runs() if run["program"] == program][-1]
        pairs = [argument.removeprefix("--").partition("=") for argument in last]
        return {name: value for name, _, value in pairs}

    def made(self) -> dict[str, bytes]:
        """Return the engine's files without the manifest, which contains times."""
        files = {path.name: path.read_bytes() for path in self.output.iterdir()}
        return {name: data for name, data in files.items() if name != "manifest.json"}

    def left(self) -> list[str]:
        """Return the names in the folder of engines."""
        return sorted(os.listdir(self.root / "engines"))
