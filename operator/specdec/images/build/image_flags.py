"""Which flags a program defines, read from the syntax tree of its source: nothing is imported.

The programs of TensorRT-LLM call `add_argument` with literal names. `trtllm-build` also calls a
helper of another module, which adds a flag for each name of a list in that module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_SWITCHES = frozenset({"store_true", "store_false", "store_const", "append_const", "count"})
_PARSERS = frozenset({"ArgumentParser", "add_argument_group", "add_mutually_exclusive_group"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Flag:
    """A flag as the source defines it; None where the source does not show a value.

    Attributes:
        switch: whether it takes no value.
        choices: the values it takes.
        required: whether the program exits with an error if it is missing.
    """

    switch: bool | None = None
    choices: tuple[str, ...] | None = None
    required: bool = False


@dataclass(frozen=True)
class Definitions:
    """The flags of a program by name, without dashes in front.

    `complete` is false where the source adds flags whose names it does not show.
    """

    flags: Mapping[str, Flag] = field(default_factory=dict)
    complete: bool = True

    def __or__(self, other: Definitions) -> Definitions:
        """The flags of both."""
        return Definitions({**self.flags, **other.flags}, self.complete and other.complete)


@dataclass(frozen=True)
class Helper:
    """A function of another module that adds flags to the program's parser.

    `level` is the number of dots in front of the module, as in a relative import.
    """

    module: str
    function: str
    level: int = 0


def defined(source: str, function: str = "") -> Definitions:
    """The flags that a module adds, or one function of it.

    Raises:
        SyntaxError: the source is no Python.
    """
    module = ast.parse(source)
    lists = dict(_lists(module))
    scope = _function(module, function) if function else module
    flags: dict[str, Flag] = {}
    complete = scope is not None
    for owner, call in _calls(scope or ast.Module([], []), "add_argument"):
        names, literal = _names(call)
        if not literal:
            names = [name for listed in _mentioned(owner, lists) for name in listed]
            complete = complete and bool(names)
        flags |= dict.fromkeys(names, _flag(call, len(names)) if literal else Flag())
    return Definitions(flags, complete)


def helpers(source: str) -> tuple[Helper, ...]:
    """Imported functions that get the program's parser as an argument.

    Raises:
        SyntaxError: the source is no Python.
    """
    module = ast.parse(source)
    parsers = set(_parsers(module))
    imported = _imported(module)
    called = {
        call.func.id
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if any(isinstance(value, ast.Name) and value.id in parsers for value in call.args)
    }
    return tuple(imported[name] for name in sorted(called & imported.keys()))


def reexport(source: str, function: str) -> Helper | None:
    """The module from which this source imports a function; None if it defines the function.

    Raises:
        SyntaxError: the source is no Python.
    """
    module = ast.parse(source)
    if _function(module, function) is not None:
        return None
    imported = _imported(module)
    star = imported.get("*")
    further = Helper(star.module, function, star.level) if star else None
    return imported.get(function, further)


def problems(definitions: Definitions, arguments: Iterable[str]) -> Iterator[str]:
    """What is wrong with the arguments of a program, each as the end of a sentence.

    Args:
        definitions: what the program defines.
        arguments: `--name=value` or `--name` each.
    """
    given = set()
    for argument in arguments:
        name, equals, value = argument.removeprefix("--").partition("=")
        actual = _resolved(name, definitions)
        given.add(actual or name)
        if actual is not None:
            yield from _misuse(name, definitions.flags[actual], value if equals else None)
        elif definitions.complete:
            yield f"does not define --{name}"
    for name, flag in definitions.flags.items():
        if flag.required and name not in given:
            yield f"requires --{name}, which a build does not pass"


def _misuse(name: str, flag: Flag, value: str | None) -> Iterator[str]:
    if flag.switch is True and value is not None:
        yield f"takes no value for --{name}"
    if flag.switch is False and value is None:
        yield f"needs a value for --{name}"
    if flag.choices is not None and value is not None and value not in flag.choices:
        yield f"does not take {value} for --{name}, but {', '.join(flag.choices)}"


def _resolved(name: str, definitions: Definitions) -> str | None:
    """The flag that argparse selects: of that name, or the only one with that prefix."""
    if name in definitions.flags:
        return name
    longer = [known for known in definitions.flags if known.startswith(name)]
    return longer[0] if len(longer) == 1 else None


def _calls(
    node: ast.AST, method: str, owner: ast.AST | None = None
) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Calls of a method, each with the innermost function around it, else the module."""
    around = node if owner is None or isinstance(node, _Function) else owner
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
    ):
        yield around, node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, method, around)


def _names(call: ast.Call) -> tuple[list[str], bool]:
    """The names of a definition, and whether the source shows them; positionals have none."""
    names, literal = [], True
    for value in call.args:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            if value.value.startswith("--"):
                names.append(value.value[2:])
        else:
            literal = False
    return names, literal


def _flag(call: ast.Call, names: int) -> Flag:
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    action = options.get("action")
    # A value may be left out with `nargs="?"`, and an action of a class may take any number.
    open_ended = "nargs" in options or (action is not None and _constant(action) is None)
    switch = None if open_ended else _constant(action) in _SWITCHES
    # A flag with several names may be given by any of them, so no single name is required.
    required = names == 1 and _constant(options.get("required")) is True
    return Flag(switch, _choices(options.get("choices")), required)


def _choices(node: ast.expr | None) -> tuple[str, ...] | None:
    if not isinstance(node, ast.List | ast.Tuple | ast.Set):
        return None
    if not all(isinstance(item, ast.Constant) for item in node.elts):
        return None
    return tuple(str(_constant(item)) for item in node.elts if _constant(item) is not None)


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _lists(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Lists of texts at the module's top, by name."""
    for statement in module.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        value = statement.value
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if isinstance(value, ast.List | ast.Tuple | ast.Set):
            texts = [item for item in map(_constant, value.elts) if isinstance(item, str)]
            yield from ((t.id, texts) for t in targets if isinstance(t, ast.Name))


def _mentioned(scope: ast.AST, lists: Mapping[str, list[str]]) -> Iterator[list[str]]:
    names = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)}
    return (lists[name] for name in sorted(names & lists.keys()))


def _function(module: ast.Module, name: str) -> _Function | None:
    functions = (node for node in module.body if isinstance(node, _Function))
    return next((function for function in functions if function.name == name), None)


def _parsers(module: ast.Module) -> Iterator[str]:
    """Names of variables that hold a parser or a group of one."""
    for statement in ast.walk(module):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            function = statement.value.func
            name = getattr(function, "attr", getattr(function, "id", ""))
            if name in _PARSERS:
                yield from (t.id for t in statement.targets if isinstance(t, ast.Name))


def _imported(module: ast.Module) -> dict[str, Helper]:
    """Functions that a module imports by name."""
    return {
        alias.asname or alias.name: Helper(statement.module or "", alias.name, statement.level)
        for statement in ast.walk(module)
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
