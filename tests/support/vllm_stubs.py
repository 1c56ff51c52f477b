"""Gives PyTorch's CUDA build empty libraries in place of NVIDIA's, which it only imports.

PyPI has only the CUDA build of PyTorch. Its libraries need cuBLAS, cuDNN, NCCL and others, 2.6 GB
of packages that a CPU never calls. The loader only wants each library and each symbol with its
version, so this module reads both from PyTorch's own libraries and links a library of that name
whose functions end the process. `libcudart` stays the real one (2 MB): PyTorch asks it for the
number of GPUs when it starts.
"""

import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# The driver's library has no stub: only a library that PyTorch opens on a GPU needs it.
NVIDIA = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")
REAL = re.compile(r"lib(cuda|cudart)\.so\.\d+")
SYMBOL = re.compile(r"(cu|nv|nccl)\w+")


@dataclass(frozen=True)
class Stub:
    """One library to link: its file name, and its symbols by version ("" for none)."""

    name: str
    symbols: Mapping[str, frozenset[str]]

    def source(self) -> str:
        """Return the C source: each function ends the process."""
        names = sorted({name for names in self.symbols.values() for name in names})
        lines = [f"void {name}(void) {{ __builtin_trap(); }}" for name in names]
        return "\n".join(lines) + "\n"

    def version_script(self) -> str:
        """Return the linker's version script."""
        return "".join(
            f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
            for version, names in sorted(self.symbols.items())
            if version
        )


@dataclass(frozen=True)
class Needs:
    """What one library needs: libraries, symbols as `nm` prints them.

    `versions` has the library that each version of a symbol belongs to.
    """

    libraries: frozenset[str]
    versions: Mapping[str, str]
    symbols: frozenset[str]


def stubs(needs: Iterable[Needs]) -> list[Stub]:
    """Return the libraries that PyTorch needs of NVIDIA, except the real ones."""
    needed: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    unversioned: set[str] = set()
    for need in needs:
        for library in need.libraries:
            if NVIDIA.fullmatch(library) and not REAL.fullmatch(library):
                needed[library]
        for symbol in need.symbols:
            name, _, version = symbol.partition("@")
            if version and need.versions.get(version) in needed:
                needed[need.versions[version]][version].add(name)
            elif not version and SYMBOL.fullmatch(name):
                unversioned.add(name)
    # Nothing records which library an unversioned symbol comes from. The loader searches all.
    return [
        Stub(
            library,
            {version: frozenset(names) for version, names in versions.items()}
            or {"": frozenset(unversioned)},
        )
        for library, versions in sorted(needed.items())
    ]


def read_needs(library: Path) -> Needs:
    """Read what a library needs, with `readelf` and `nm` of binutils."""
    dynamic = _run("readelf", "-dW", str(library))
    versions: dict[str, str] = {}
    file = ""
    for line in _run("readelf", "-VW", str(library)).splitlines():
        if named := re.search(r"\bFile: (\S+)", line):
            file = named[1]
        elif named := re.search(r"\bName: (\S+)\s+Flags: \S+\s+Version:", line):
            versions[named[1]] = file
    undefined = _run("nm", "-D", "--undefined-only", "--with-symbol-versions", str(library))
    return Needs(
        libraries=frozenset(re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)),
        versions=versions,
        symbols=frozenset(line.split()[-1] for line in undefined.splitlines() if line.strip()),
    )


def link(stub: Stub, folder: Path) -> None:
    """Compile a stub into `folder`."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "stub.c")
        source.write_text(stub.source())
        arguments = ["-shared", "-fPIC", "-O1", "-w", "-nostdlib", f"-Wl,-soname,{stub.name}"]
        if script := stub.version_script():
            path = Path(temporary, "stub.map")
            path.write_text(script)
            arguments.append(f"-Wl,--version-script={path}")
        _run("cc", *arguments, "-o", str(folder / stub.name), str(source))


def install(torch: Path) -> list[str]:
    """Link every stub into `torch/lib`, where PyTorch loads it; return their names."""
    libraries = torch / "lib"
    linked = stubs([read_needs(path) for path in sorted(libraries.glob("*.so"))])
    for stub in linked:
        link(stub, libraries)
    return [stub.name for stub in linked]


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
