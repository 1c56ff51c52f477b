"""How tritonserver is started on a repository: an argument list, never a shell line."""

# Restricted endpoints ask for this value in a header. A header cannot hold a line break, so
# nobody can send it: the endpoints are closed, and there is no secret to keep.
_CLOSED = "specdec-closed=no\nvalue"

# Reading is fine (health, metadata, configuration, statistics); these change the server, attach
# memory of the host, or make it write files.
_RESTRICTED = "shared-memory,model-repository,trace,logging"


def server_argv(
    repository_dir: str,
    *,
    http_port: int = 8000,
    grpc_port: int = 8001,
    metrics_port: int = 8002,
    address: str | None = None,
    exit_timeout_seconds: int = 120,
    shm_region_prefix: str = "specdec_rank0_",
    log_verbose: int = 0,
) -> list[str]:
    """Arguments of a single-rank server; the first is the executable's name.

    Args:
        repository_dir: the model repository; its set of models is fixed for the server's life.
        http_port, grpc_port, metrics_port: listening ports.
        address: address of all three listeners; None is every interface.
        exit_timeout_seconds: after SIGTERM, how long running requests may take to finish.
        shm_region_prefix: names this server's regions in /dev/shm; must differ between servers
            that share it.
        log_verbose: Triton's verbose level, 0 to 3.
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
        f"--http-restricted-api={_RESTRICTED}:{_CLOSED}",
        f"--grpc-restricted-protocol={_RESTRICTED}:{_CLOSED}",
        f"--exit-timeout-secs={exit_timeout_seconds}",
        f"--backend-config=python,shm-region-prefix-name={shm_region_prefix}",
    ]
    if address is not None:
        argv += [f"--{listener}-address={address}" for listener in ("http", "grpc", "metrics")]
    if log_verbose:
        argv.append(f"--log-verbose={log_verbose}")
    return argv
