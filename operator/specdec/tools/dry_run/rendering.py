"""Write a plan as files: one YAML file per object, and the model repository.

`specdec render` calls `write`. A directory is written completely or not at all. Only an earlier
result of the same command is replaced.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from specdec.tools.dry_run.plan import ResourcePlan
from specdec.tools.dry_run.resource import UNKNOWN_UID, InputError
from specdec.tools.dry_run.summary import summary
from specdec.tools.dry_run.yaml_reader import is_text

# The file that marks a directory as a result of `write`, which may replace it.
MARKER = "specdec-plan.json"
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_DUMPER):  # type: ignore[misc]
    """Writes YAML for reviewers and kubectl: no anchors, and texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip("\n") else None if is_text(text) else "'"
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Dumper.add_representer(str, _represent_text)


def dump(value: Mapping[str, Any]) -> str:
    """An object as YAML, with its fields in order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=98))


def files(plan: ResourcePlan) -> dict[str, str]:
    """Every file of the directory, path -> text."""
    result = {_file_name(obj): dump(_without_unknown_owner(obj)) for obj in plan.objects}
    result |= {f"repository/{path}": text for path, text in plan.files.items()}
    return {**result, MARKER: json.dumps(summary(plan), indent=2) + "\n"}


def write(plan: ResourcePlan, folder: Path, *, force: bool = False) -> int:
    """Write the directory completely or not at all; returns the number of files.

    Args:
        plan: what to write.
        folder: a missing or empty directory, or with `force` an earlier result.
        force: replace an earlier result.

    Raises:
        InputError: the directory has other files, or cannot be written.
    """
    final = folder.resolve()
    _require_replaceable(final, force)
    texts = files(plan)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(
            tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent)
        )
        try:
            _fill(temporary, texts)
            _replace(temporary, final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"-o {folder} cannot be written ({error}): name another folder"
        ) from error
    return len(texts)


def _require_replaceable(final: Path, force: bool) -> None:
    if final.is_dir():
        if not any(final.iterdir()) or (force and (final / MARKER).is_file()):
            return
        fix = "name another folder"
        if (final / MARKER).is_file():
            fix = "give --force to replace the result of an earlier render"
        raise InputError(f"-o {final} is not empty: {fix}")
    if final.exists():
        raise InputError(f"-o {final} is not a folder: name a folder")


def _fill(directory: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    directory.chmod(0o755)


def _replace(temporary: Path, final: Path) -> None:
    """Rename the directory to its final name; an existing one is moved first and deleted last."""
    if not final.exists():
        temporary.rename(final)
        return
    with tempfile.TemporaryDirectory(prefix=f".{final.name}.", dir=final.parent) as backup:
        old = final.rename(Path(backup) / "old")
        try:
            temporary.rename(final)
        except OSError:
            os.rename(old, final)
            raise


def _file_name(obj: Mapping[str, Any]) -> str:
    return f"{obj['kind'].lower()}-{obj['metadata']['name']}.yaml"


def _without_unknown_owner(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object without an owner reference whose uid only the cluster knows.

    The garbage collector would delete a manually applied object whose owner does not exist.
    """
    metadata = dict(obj["metadata"])
    owners = [item for item in metadata.pop("ownerReferences") if item["uid"] != UNKNOWN_UID]
    return {**obj, "metadata": metadata | ({"ownerReferences": owners} if owners else {})}
