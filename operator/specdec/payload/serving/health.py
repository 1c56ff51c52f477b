"""A probe of a server on localhost: a path answers with status 200.

Arguments: the port, the path, and for how many seconds to try. Exits 1 with a message, which
becomes an event of the pod.
"""

import http.client
import sys
import time

_POLL = 0.25
# No request is sent with less time left than this.
_LEAST = 1.0


def check(port: int, path: str, seconds: float) -> str:
    """The problem of the server after the last attempt; empty if there is none."""
    deadline, problem = time.monotonic() + seconds, ""
    while (left := deadline - time.monotonic()) >= min(_LEAST, seconds / 2):
        problem = _attempt(port, path, left)
        if not problem:
            break
        time.sleep(_POLL)
    return problem


def _attempt(port: int, path: str, seconds: float) -> str:
    # Not urllib: it would send the request to a proxy of the environment.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except TimeoutError:
        return f"{path} did not answer within {seconds:.0f} s"
    except (OSError, http.client.HTTPException) as error:
        return f"{path} did not answer ({type(error).__name__})"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"{path} answered with status {status}"


if __name__ == "__main__":
    if wrong := check(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])):
        sys.exit(wrong)
