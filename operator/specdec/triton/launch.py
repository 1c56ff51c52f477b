"""The command lines of tritonserver and its hooks: argument lists, never a shell line.

A server with one rank is the container's first process. A server with several ranks is started by
mpirun, with one application context per rank, separated by ":". Users control only numbers here.

In a group of pods, mpirun names each pod by its index, which is the same in every group. The agent
that starts the ranks of a worker (`images/serving/agent.py`) resolves the name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from specdec.triton.layout import Launch, Mode
from specdec.triton.model_names import DRAFT, TARGET

# The default store of PMIx maps files in shared memory, which fails in some containers.
_STORE = {"PMIX_MCA_gds": "hash"}
# From 25.07 on Triton refuses clients that register a shared-memory region with this prefix, the
# default of its Python backend. A prefix that does not start with it would bypass that check.
_REGIONS = "triton_python_backend_shm_region_"
SHM_PREFIX = f"{_REGIONS}specdec_rank"
# The LLM API starts its ranks with MPI_Comm_spawn, without mpirun and its options: see `command`.
# Open MPI 4 reads OMPI_MCA_*, Open MPI 5 the others.
SPAWNED_RANKS = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    **_STORE,
}
# mpirun treats this name as its own machine and starts no remote shell for it.
_LEADER, _WORKER = "localhost", "worker"

# Listening ports by name, in the order of the container's and the Service's lists.
PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}

# Seconds. A client with an open connection stays with its pod. The age limit makes it reconnect,
# so that the Service spreads clients over all pods.
CONNECTION_AGE = 30

# Triton's gRPC endpoint keeps this many objects of requests for reuse, 8 by default. If a model
# with one response is called in a stream, Triton writes to the object of a request after another
# thread may have released it. If the object is not kept, it is freed, and the write corrupts the
# heap (seen in 2.51 with valgrind). The number of objects never exceeds that of requests at once.
_KEPT_REQUESTS = 65536

# Restricted endpoints require this header, which no client can send. So they are closed, and no
# secret is needed. In HTTP/1 a header's name ends at the first colon, its value at a line break.
# HTTP/2 could carry both, but gRPC refuses a call with a colon, a blank or an upper-case letter in
# a header's name.
_CLOSED = "Closed: to all=no\nvalue"

# These endpoints change the server, attach memory of the host, or write files. Endpoints that only
# read stay open (health, metadata, configuration, statistics).
_RESTRICTED = "shared-memory,model-repository,trace,logging"
# All other endpoints, except health and inference.
_READ = "metadata,model-config,statistics"
# Where HTTP is closed, the startup and readiness probes still ask for tokens over it. They send a
# key. `images/serving/check_volume.py` puts it in place of this text when the container starts.
PROBE_KEY = "{probe-key}"
_PROBE_HEADER = "specdec-probe"

# Where containers mount the programs of `images/serving`: file check, probes and hook.
PROGRAMS = "/specdec/programs"


@dataclass(frozen=True)
class Tls:
    """PEM files of a gRPC endpoint; with `client_ca` it requires client certificates.

    Triton reads them once, at its start, and has no TLS for its HTTP endpoint.
    """

    certificate: str
    key: str
    client_ca: str | None = None


def server_argv(
    repository_dir: str,
    *,
    http_port: int = PORTS["http"],
    grpc_port: int = PORTS["grpc"],
    metrics_port: int = PORTS["metrics"],
    address: str | None = None,
    exit_timeout_seconds: int = 120,
    connection_age_seconds: int = CONNECTION_AGE,
    shm_region_prefix: str = f"{SHM_PREFIX}0_",
    log_verbose: int = 0,
    tls: Tls | None = None,
    health_only: bool = False,
    probe_key: str | None = None,
) -> list[str]:
    """Arguments of a single-rank server; the first is the executable's name.

    Args:
        repository_dir: the model repository; its set of models is fixed for the server's life.
        http_port, grpc_port, metrics_port: listening ports.
        address: address of all three listeners; None is every interface.
        exit_timeout_seconds: after SIGTERM, how long running requests may take to finish.
        connection_age_seconds: a gRPC client must reconnect after about that time; its running
            calls finish.
        shm_region_prefix: names this server's regions in /dev/shm; must differ between servers
            that share it.
        log_verbose: Triton's verbose level, 0 to 3.
        tls: files of the gRPC endpoint. HTTP stays unencrypted, and then only reports health.
        health_only: HTTP only reports health, even if `tls` is None. Any other request is refused
            before its body is parsed.
        probe_key: opens inference over such a closed HTTP endpoint to requests with this key.
    """
    argv = [
        "tritonserver",
        f"--model-repository={repository_dir}",
        "--model-control-mode=none",
        "--strict-readiness=true",
        "--exit-on-error=true",
        "--disable-auto-complete-config",
        # One model after another: two engines that measure free memory at once both see all of it.
        "--model-load-thread-count=1",
        f"--http-port={http_port}",
        f"--grpc-port={grpc_port}",
        f"--metrics-port={metrics_port}",
        *_closed_http(tls is not None or health_only, probe_key),
        f"--grpc-restricted-protocol={_RESTRICTED}:{_CLOSED}",
        f"--exit-timeout-secs={exit_timeout_seconds}",
        f"--grpc-max-connection-age={connection_age_seconds * 1000}",
        f"--grpc-infer-allocation-pool-size={_KEPT_REQUESTS}",
        mark(shm_region_prefix),
    ]
    if address is not None:
        argv += [f"--{listener}-address={address}" for listener in PORTS]
    if log_verbose:
        argv.append(f"--log-verbose={log_verbose}")
    return [*argv, *_encrypted(tls)] if tls else argv


def _closed_http(health_only: bool, probe_key: str | None) -> Iterator[str]:
    option = "--http-restricted-api="
    if not health_only:
        yield f"{option}{_RESTRICTED}:{_CLOSED}"
    elif probe_key is None:
        yield f"{option}{_RESTRICTED},inference,{_READ}:{_CLOSED}"
    else:
        yield f"{option}{_RESTRICTED},{_READ}:{_CLOSED}"
        yield f"{option}inference:{_PROBE_HEADER}={probe_key}"


def _encrypted(tls: Tls) -> Iterator[str]:
    yield "--grpc-use-ssl=true"
    yield f"--grpc-server-cert={tls.certificate}"
    yield f"--grpc-server-key={tls.key}"
    if tls.client_ca is not None:
        yield "--grpc-use-ssl-mutual=true"
        yield f"--grpc-root-cert={tls.client_ca}"


def command(
    launch: Launch,
    repository_dir: str,
    *,
    exit_timeout_seconds: int = 120,
    connection_age_seconds: int = CONNECTION_AGE,
    shm_region_prefix: str = SHM_PREFIX,
    log_verbose: int = 0,
    tls: Tls | None = None,
    health_only: bool = False,
) -> list[str]:
    """Arguments of a server's container, for one rank or for many.

    Args:
        launch: from `layout.plan`.
        repository_dir: the model repository; rank 0 loads all of it.
        exit_timeout_seconds: after SIGTERM, how long running requests may take to finish.
        connection_age_seconds: as in `server_argv`.
        shm_region_prefix: what the names of all ranks' regions in /dev/shm start with.
        log_verbose: as in `server_argv`, for every rank.
        tls, health_only: as in `server_argv`; only rank 0 has ports.
    """
    contexts = [
        server_argv(
            repository_dir,
            exit_timeout_seconds=exit_timeout_seconds,
            connection_age_seconds=connection_age_seconds,
            shm_region_prefix=f"{shm_region_prefix}{rank}_",
            log_verbose=log_verbose,
            tls=tls if rank == 0 else None,
            health_only=health_only and rank == 0,
            probe_key=PROBE_KEY,
        )
        for rank in range(launch.world_size)
    ]
    if launch.mode is Mode.PLAIN:
        return contexts[0]
    models = (TARGET, DRAFT) if launch.mode is Mode.ORCHESTRATOR else (TARGET,)
    hosts = _hosts(launch)
    # Open MPI limits ranks to the number of CPUs, and a pod may have fewer CPUs than GPUs. It also
    # binds each rank to one core, with all its threads and the processes of its Python models.
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    for rank, context in enumerate(contexts):
        own = context if rank == 0 else list(_follower(context, models))
        host = ["--host", hosts[rank]] if hosts else []
        argv += [*([":"] if rank else []), "-n", "1", *host, *own]
    return argv


def _hosts(launch: Launch) -> list[str]:
    """The host name of every rank for mpirun; empty for a server in one pod."""
    names = [_LEADER, *(f"{_WORKER}-{index}" for index in range(1, len(launch.slots)))]
    return [name for name, slots in zip(names, launch.slots, strict=False) for _ in range(slots)]


def environment(launch: Launch) -> dict[str, str]:
    """Variables of a server's container; every rank inherits them from mpirun."""
    if launch.mode is Mode.PLAIN:
        return {}
    variables = dict(_STORE)
    if launch.mode is Mode.ORCHESTRATOR:
        # mpirun has started all ranks: the orchestrator spawns none.
        variables |= {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}
    return variables


def remote_shell(argv: Sequence[str]) -> dict[str, str]:
    """Variables by which mpirun, of Open MPI 4 or 5, reaches the other pods of its group.

    mpirun starts the daemon of every pod itself and keeps a connection to it. So the loss of a pod
    ends the job at once.
    """
    agent = " ".join(argv)
    return {
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
    }


def pre_stop(
    launch: Launch,
    *,
    linger_seconds: int,
    exit_timeout_seconds: int,
    reconnect_seconds: int = 0,
    metrics_port: int = PORTS["metrics"],
    client_ports: Sequence[int] = (PORTS["http"], PORTS["grpc"]),
    shm_region_prefix: str = SHM_PREFIX,
) -> list[str]:
    """Arguments of the hook that runs before the container's first process gets SIGTERM.

    Args:
        launch: from `layout.plan`.
        linger_seconds: first wait: the server goes on serving while endpoints are removed.
        exit_timeout_seconds: last wait: running requests may take this long to finish.
        reconnect_seconds: second wait: clients close their connections, and move to another pod.
        metrics_port: the server's; its metrics show when no request is in flight.
        client_ports: the ports whose connections the second wait counts.
        shm_region_prefix: as in `command`.
    """
    numbers = (linger_seconds, reconnect_seconds, exit_timeout_seconds, metrics_port)
    ports = ",".join(str(port) for port in client_ports)
    hook = ["python3", program_path("drain.py"), *(str(number) for number in numbers), ports]
    return hook if launch.mode is Mode.PLAIN else [*hook, mark(f"{shm_region_prefix}0_")]


def _follower(context: Sequence[str], models: Sequence[str]) -> Iterator[str]:
    """Arguments of every rank but the first: it loads only engines, and opens no port.

    The load of an engine does not return in such a rank until the server ends. Therefore every
    model that it loads needs a thread of its own.
    """
    for argument in context:
        name = argument.partition("=")[0]
        if name == "--model-control-mode":
            yield "--model-control-mode=explicit"
            yield from (f"--load-model={model}" for model in models)
        elif name == "--model-load-thread-count":
            yield f"--model-load-thread-count={len(models)}"
        else:
            yield argument
    yield from (f"--allow-{listener}=false" for listener in PORTS)


def mark(shm_region_prefix: str) -> str:
    """The argument that differs between the ranks of a server, and so identifies a rank."""
    return f"--backend-config=python,shm-region-prefix-name={shm_region_prefix}"


def program_path(name: str) -> str:
    """The path of a program of `images/serving` inside the pod."""
    return f"{PROGRAMS}/{name}"


@cache
def program(name: str) -> str:
    """The source of a program of `images/serving`."""
    file = resources.files("specdec").joinpath("images", "serving", name)
    return file.read_text("utf-8")
