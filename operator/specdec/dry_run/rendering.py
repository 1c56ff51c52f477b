"""A plan as files: one YAML for each object, and the model repository as it lies on the volume."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from specdec.dry_run.plan import Plan, summary
from specdec.dry_run.resource import UNKNOWN_UID, InputError

# What `write` leaves in every folder, and what it must find in one before it replaces it.
MARK = "specdec-plan.json"
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_DUMPER):  # type: ignore[misc]
    """YAML for reviewers: no anchors, texts in blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip("\n") else None
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Dumper.add_representer(str, _text)


def dump(value: Mapping[str, Any]) -> str:
    """One object as YAML in the order of its fields."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=98))


def files(plan: Plan) -> dict[str, str]:
    """Every file of the folder, path -> text."""
    found = {f"{_name(obj)}.yaml": dump(_owned(obj)) for obj in plan.objects}
    found |= {f"repository/{path}": text for path, text in plan.files.items()}
    return {**found, MARK: json.dumps(summary(plan), indent=2) + "\n"}


def write(plan: Plan, folder: Path, *, force: bool = False) -> int:
    """Write the folder whole or not at all; returns the number of files.

    Args:
        plan: what to write.
        folder: absent or empty, or with `force` one that an earlier call wrote.
        force: replace what an earlier call wrote.

    Raises:
        InputError: the folder holds something else, or cannot be written.
    """
    final = folder.resolve()
    _require_room(final, force)
    texts = files(plan)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
        try:
            _fill(scratch, texts)
            _settle(scratch, final)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise InputError(f"-o {folder} cannot be written ({error}): name another") from error
    return len(texts)


def _require_room(final: Path, force: bool) -> None:
    if final.is_dir():
        if not any(final.iterdir()) or (force and (final / MARK).is_file()):
            return
        mend = "name another folder"
        if (final / MARK).is_file():
            mend = "give --force to replace what an earlier render wrote"
        raise InputError(f"-o {final} is not empty: {mend}")
    if final.exists():
        raise InputError(f"-o {final} is no folder: name a folder")


def _fill(scratch: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        place = scratch / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    scratch.chmod(0o755)


def _settle(scratch: Path, final: Path) -> None:
    """Give the folder its name; one that is there steps aside first and goes last."""
    if not final.exists():
        scratch.rename(final)
        return
    with tempfile.TemporaryDirectory(prefix=f".{final.name}.", dir=final.parent) as aside:
        old = final.rename(Path(aside) / "old")
        try:
            scratch.rename(final)
        except OSError:
            os.rename(old, final)
            raise


def _name(obj: Mapping[str, Any]) -> str:
    return f"{obj['kind'].lower()}-{obj['metadata']['name']}"


def _owned(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object without an owner that is only known in the cluster.

    An object that was applied by hand with an owner that does not exist would be collected.
    """
    metadata = dict(obj["metadata"])
    owners = [one for one in metadata.pop("ownerReferences") if one["uid"] != UNKNOWN_UID]
    return {**obj, "metadata": metadata | ({"ownerReferences": owners} if owners else {})}
