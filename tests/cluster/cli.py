"""The command line: `python -m cluster COMMAND` with tests/ on PYTHONPATH."""

import argparse
import sys
from collections.abc import Sequence

from cluster import archive, binaries, handle, images, lifecycle, node
from cluster.errors import ClusterError
from cluster.progress import report
from cluster.state import Options, State, User

_NAME = "demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for an error that the user can fix."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted; `down` removes what was started", file=sys.stderr)
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cluster",
        description="A real Kubernetes on this machine, without Docker: built from source once, "
        "kept in a cache, removed by `down`.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build every program into the cache")
    build.add_argument("programs", nargs="*", metavar="PROGRAM", help="only these")
    build.set_defaults(run=_build)
    _add_up(commands)
    for name, run, summary in (
        ("down", _down, "stop a cluster and remove everything of it"),
        ("kubeconfig", _kubeconfig, "print the path of a cluster's kubeconfig"),
    ):
        _named(commands.add_parser(name, help=summary)).set_defaults(run=run)
    gpus = _named(commands.add_parser("gpus", help="set how many GPUs a running node simulates"))
    gpus.add_argument("count", type=int, metavar="COUNT", help="GPUs that the node offers to pods")
    gpus.set_defaults(run=_gpus)
    _add_image(commands)
    return parser


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--name", default=_NAME, help=f"the cluster's name (default: {_NAME})")
    return parser


def _add_up(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    defaults = Options()
    up = _named(commands.add_parser("up", help="start a cluster and print its kubeconfig's path"))
    kind = up.add_mutually_exclusive_group()
    kind.add_argument(
        "--node", dest="kind", action="store_const", const="node", help="with a node (root, Linux)"
    )
    kind.add_argument(
        "--control-plane",
        dest="kind",
        action="store_const",
        const="control-plane",
        help="without one (the default)",
    )
    up.add_argument("--kwok", action="store_true", help="simulate nodes and pods")
    up.add_argument(
        "--hold-jobs", action="store_true", help="simulated pods of Jobs wait for an outcome"
    )
    up.add_argument("--gpus", type=int, default=defaults.gpus, help="GPUs of each node")
    up.add_argument("--gpu-product", default=defaults.gpu_product, help="their product label")
    up.add_argument("--nodes", type=int, default=defaults.nodes, help="simulated nodes")
    up.add_argument("--volumes", type=int, default=defaults.volumes, help="volumes to offer")
    up.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME[=GROUP,GROUP]",
        help="a further user with a token; may be repeated",
    )
    up.set_defaults(run=_up, kind=defaults.kind)


def _add_image(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    image = commands.add_parser("image", help="build images, and load them into a node")
    actions = image.add_subparsers(required=True, metavar="ACTION")
    build = actions.add_parser("build", help="build a target of the Dockerfile")
    build.add_argument("--target", required=True, help="the stage, such as operator")
    build.add_argument("--tag", help="the image's name (default: localhost/specdec-TARGET:dev)")
    build.add_argument("--file", default="Dockerfile", help="the Dockerfile")
    build.set_defaults(run=_image_build)
    load = _named(actions.add_parser("load", help="load built images into a node"))
    load.add_argument("tags", nargs="+", metavar="TAG")
    load.set_defaults(run=_image_load)


def _build(arguments: argparse.Namespace) -> int:
    names = arguments.programs or list(binaries.PROGRAMS)
    if unknown := sorted(set(names) - set(binaries.PROGRAMS)):
        raise ClusterError(
            f"There is no program {', '.join(unknown)}; there are {', '.join(binaries.PROGRAMS)}."
        )
    binaries.ensure(names, report)
    print(f"{len(names)} programs are built")
    return 0


def _up(arguments: argparse.Namespace) -> int:
    options = Options(
        kind=arguments.kind,
        kwok=arguments.kwok,
        hold_jobs=arguments.hold_jobs,
        gpus=arguments.gpus,
        gpu_product=arguments.gpu_product,
        nodes=arguments.nodes,
        volumes=arguments.volumes,
        users=tuple(_user(text) for text in arguments.user),
    )
    if options.kwok and options.kind == "node":
        raise ClusterError("--kwok simulates nodes and pods and --node has real ones; choose one.")
    print(lifecycle.up(arguments.name, options, report).kubeconfig)
    return 0


def _user(text: str) -> User:
    name, _, groups = text.partition("=")
    return User(name, tuple(group for group in groups.split(",") if group))


def _down(arguments: argparse.Namespace) -> int:
    lifecycle.down(arguments.name, report)
    return 0


def _gpus(arguments: argparse.Namespace) -> int:
    if arguments.count < 0:
        raise ClusterError(f"A node cannot offer {arguments.count} GPUs; give 0 or more.")
    state = _node_state(arguments, "simulate GPUs on")
    node.offer_gpus(state, arguments.count)
    report(f"{state.name} offers {arguments.count} GPUs")
    return 0


def _state(arguments: argparse.Namespace) -> State:
    return handle.attach(arguments.name).state


def _node_state(arguments: argparse.Namespace, action: str) -> State:
    state = _state(arguments)
    if state.options.kind != "node":
        raise ClusterError(f"{state.name} has no node to {action}.")
    return state


def _kubeconfig(arguments: argparse.Namespace) -> int:
    print(_state(arguments).kubeconfig)
    return 0


def _image_build(arguments: argparse.Namespace) -> int:
    tag = arguments.tag or images.default_tag(arguments.target)
    image = images.build(arguments.target, tag, report, arguments.file)
    print(image.tag)
    return 0


def _image_load(arguments: argparse.Namespace) -> int:
    state = _node_state(arguments, "load images into")
    for tag in arguments.tags:
        fresh = archive.load_built(state, tag, images.find(tag).id)
        report(f"loaded {tag}" if fresh else f"{tag} is there already")
    return 0
