"""A fake program of a TensorRT-LLM image, which checks its arguments and writes output.

`python3 recorder.py PROGRAM ARGUMENTS...` compares the arguments with the program's documented
flags (`flag_tables.json`). Like argparse, it refuses unknown flags, wrong types and missing flags.
Every run is appended to $RECORD. $SCENE may make the program fail or stop in the middle.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

TABLES = json.loads(Path(__file__).with_name("flag_tables.json").read_text(encoding="utf-8"))
MODES = {
    "draft_tokens_external": 2,
    "medusa": 4,
    "lookahead_decoding": 8,
    "explicit_draft_tokens": 16,
    "eagle": 32,
}


def parse(program: str, arguments: list[str]) -> dict[str, Any]:
    table = TABLES[program]
    values: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in table or name in values:
            refuse(program, f"unrecognized arguments: {argument}")
        values[name] = convert(program, name, value if equals else None)
    missing = [name for name, rule in table.items() if rule.get("required") and name not in values]
    if missing:
        refuse(program, f"the following arguments are required: {', '.join(missing)}")
    return values


def convert(program: str, name: str, value: str | None) -> Any:
    rule = TABLES[program][name]
    if rule.get("type") == "switch":
        return True if value is None else refuse(program, f"--{name}: ignored explicit argument")
    if value is None:
        return refuse(program, f"argument --{name}: expected one argument")
    if "choices" in rule and value not in rule["choices"]:
        return refuse(program, f"argument --{name}: invalid choice: {value!r}")
    if rule.get("type") == "dir" and not Path(value).is_dir():
        return refuse(program, f"argument --{name}: no directory {value!r}")
    if rule.get("type") == "int":
        return int(value)
    return value


def refuse(program: str, message: str) -> Any:
    print(f"{program}: error: {message}", file=sys.stderr)
    sys.exit(2)


def checkpoint(program: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a TensorRT-LLM checkpoint."""
    base = values.get("base_model_checkpoint_dir")
    config: dict[str, Any] = {}
    if base:
        config = json.loads((Path(base) / "config.json").read_text(encoding="utf-8"))
    tensor, pipeline = values.get("tp_size", 1), values.get("pp_size", 1)
    config |= {
        "vocab_size": 128,
        "dtype": values.get("dtype"),
        "mapping": {"tp_size": tensor, "pp_size": pipeline, "world_size": tensor * pipeline},
    }
    if program == "convert-medusa":
        config["max_draft_len"] = values["max_medusa_token_len"]
    elif "max_draft_len" in values:
        config["max_draft_len"] = values["max_draft_len"]
    names = ("qformat", "redrafter_num_beams", "redrafter_draft_len_per_beam")
    return config | {name: values[name] for name in names if name in values}


def engine(values: dict[str, Any]) -> dict[str, Any]:
    source = Path(values["checkpoint_dir"])
    model = json.loads((source / "config.json").read_text(encoding="utf-8"))
    for rank in range(model["mapping"]["world_size"]):
        if not (source / f"rank{rank}.safetensors").stat().st_size:
            refuse("trtllm-build", f"checkpoint has no rank {rank}")
    build = {key: value for key, value in values.items() if not key.endswith("_dir")}
    paged = values.get("use_paged_context_fmha") == "enable"
    build["plugin_config"] = {"use_paged_context_fmha": paged}
    build["speculative_decoding_mode"] = MODES.get(values.get("speculative_decoding_mode", ""), 1)
    return {"version": "test", "pretrained_config": model, "build_config": build}


def main(program: str, arguments: list[str]) -> None:
    with open(os.environ["RECORD"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"program": program, "arguments": arguments}) + "\n")
    values = parse(program, arguments)
    output = Path(values["output_dir"])
    scene = json.loads(os.environ.get("SCENE", "{}")).get(program, {})
    building = program == "trtllm-build"
    config = engine(values) if building else checkpoint(program, values)
    config = {**config, **scene.get("config", {})}
    stated = {k: v for k, v in sorted(values.items()) if not k.endswith("_dir")}
    seed = hashlib.sha256(json.dumps([program, stated]).encode()).digest()
    mapping = (config["pretrained_config"] if building else config)["mapping"]
    kind = "engine" if building else "safetensors"
    for rank in range(mapping["tp_size"] * mapping["pp_size"]):
        print(f"Loading: {10 * rank + 10}%|####", end="\r", flush=True)
        if rank not in scene.get("skip", []):
            (output / f"rank{rank}.{kind}").write_bytes(seed * (rank + 1))
        if "stop" in scene:  # report that the step is running, and wait in it
            Path(scene["stop"]).write_text(str(os.getpid()), encoding="utf-8")
            signal.pause()
        print(f"Serializing {output}/rank{rank}.{kind}", flush=True)
    for line in scene.get("prints", []):
        print(line, file=sys.stderr)
    if "signal" in scene:
        os.kill(os.getpid(), scene["signal"])
    if scene.get("status"):
        sys.exit(scene["status"])
    (output / "config.json").write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
