"""Measures an OpenAI server with AIPerf: URL, MODEL, TOKENIZER (a folder), LENGTH."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

url, model, tokenizer, length = sys.argv[1:]
options = {
    "url": url.removesuffix("/v1"),
    "model": model,
    "tokenizer": tokenizer,
    "endpoint-type": "completions",
    "concurrency": 2,
    "request-count": 8,
    "synthetic-input-tokens-mean": 16,
    "output-tokens-mean": length,
    "ui": "none",
}
# With drafts, vLLM's builds for CPUs cannot sample (vllm#55005).
inputs = ("ignore_eos:true", "temperature:0")
# Offline, AIPerf takes a name in the hub's cache alone, and no folder.
os.environ.pop("HF_HUB_OFFLINE", None)
with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "aiperf", "profile"]
    command += ["--streaming", "--use-server-token-count", f"--artifact-dir={folder}"]
    command += [f"--{name}={value}" for name, value in options.items()]
    command += [f"--extra-inputs={value}" for value in inputs]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        records = Path(folder, "profile_export.jsonl")
        sys.exit(records.read_text("utf-8") if records.exists() else "AIPerf measured nothing")
    (page,) = Path(folder).rglob("profile_export_aiperf.json")
    result = json.loads(page.read_text("utf-8"))
json.dump(
    {
        "requests": result["request_count"]["avg"],
        "errors": result["error_summary"],
        "tokens": result["total_osl"]["avg"],
        "tokens per second": result["output_token_throughput"]["avg"],
    },
    sys.stdout,
)
