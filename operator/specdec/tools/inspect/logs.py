"""Read the logs of all pods of a resource, for `specdec logs`.

`Logs.read` reads them once, `Logs.follow` until the resource is deleted. Both pass each line to
`write`, and a sentence for each problem to `note`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.api.model import API_VERSION, KIND
from specdec.cluster import Missing, Rejected, Transient
from specdec.cluster.person import PersonCluster
from specdec.tools.inspect import session, status
from specdec.tools.inspect.containers import ContainerRun, started

Json = dict[str, Any]
Write = Callable[[str], None]
# Seconds between two lists of the pods.
INTERVAL = 2.0
# A container that waits has no log yet.
_NO_LOG_YET = 400


@dataclass(frozen=True)
class Selection:
    """Which lines to read.

    Attributes:
        components: component labels of pods; empty for all.
        lines: the last lines of each container only; None for all.
        times: put the time of each line before it.
    """

    components: Collection[str] = ()
    lines: int | None = None
    times: bool = False


@dataclass
class _Progress:
    """How far the log of one run of a container was read.

    Attributes:
        last: the time of the last line.
        complete: the run has ended, and its log was read to its end.
    """

    last: str = ""
    complete: bool = False


class Logs:
    """The logs of one resource."""

    def __init__(
        self,
        cluster: PersonCluster,
        resource: tuple[str, str],
        selection: Selection,
        write: Write,
        note: Write,
    ) -> None:
        self._cluster = cluster
        self._namespace, self._name = resource
        self._selection = selection
        self._write = write
        self._note = note
        self._noted: set[str] = set()
        self._progress: dict[tuple[str, str, int], _Progress] = {}

    async def read(self) -> bool:
        """Write every line that there is, pod by pod; False if something cannot be read.

        Raises:
            ClusterError: the API server does not respond, or the caller may not read the resource.
            BadRequestError: there is no such resource.
        """
        pods = await self._pods()
        for pod in pods:
            for container in started(pod):
                try:
                    await self._copy(container, follow=False)
                except Missing:
                    continue  # the pod was deleted since
                except (Rejected, Transient) as error:
                    self._note_once(f"the log of {container.label} is not included: {error}")
        return not self._noted

    async def follow(self) -> bool:
        """Write lines as pods log them, until the resource is deleted.

        Lost connections are opened again, and continue after the last line.

        Returns:
            False if the caller may not list the pods.

        Raises:
            ClusterError: at the start the API server does not respond, or the caller may not read
                the resource.
            BadRequestError: there is no such resource.
        """
        streams: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        pods: list[Json] | None = await self._pods()
        if not pods and self._noted:
            return False
        try:
            while pods is not None:
                for container in (item for pod in pods for item in started(pod)):
                    progress = self._progress.setdefault(container.run, _Progress())
                    if container.run not in streams and not progress.complete:
                        streams[container.run] = asyncio.create_task(self._stream(container))
                await asyncio.sleep(INTERVAL)
                for run in [run for run, task in streams.items() if task.done()]:
                    streams.pop(run).result()  # raises if the output is closed
                pods = await self._next_pods()
            # Wait for the last lines of pods that were deleted with the resource.
            await asyncio.gather(*streams.values())
            return True
        finally:
            for task in streams.values():
                task.cancel()
            await asyncio.gather(*streams.values(), return_exceptions=True)

    async def _pods(self) -> list[Json]:
        """The selected pods, oldest first; if there is no such pod, a note has the reason."""
        await session.resource(self._cluster, self._namespace, self._name)
        children = await self._list()
        pods = self._selected(children)
        if not pods and not self._noted:
            parts = sorted({_component(pod) for pod in children.pods})
            hint = f"it has pods of {', '.join(parts)}" if parts else "specdec status shows why"
            of = ", ".join(self._selection.components)
            kind = f"pod of the component {of}" if of else "pod"
            self._note(f"{self._namespace}/{self._name} has no {kind}: {hint}")
        return pods

    async def _next_pods(self) -> list[Json] | None:
        """The selected pods now; empty if they cannot be read, None if the resource is deleted."""
        try:
            pods = self._selected(await self._list())
            if pods:
                return pods
            live = await self._cluster.get(API_VERSION, KIND, self._namespace, self._name)
        except Transient as error:
            self._note_once(str(error))
            return []
        if live is None:
            self._note(f"{self._namespace}/{self._name} was deleted")
        return None if live is None else pods

    async def _list(self) -> status.Children:
        children = await status.list_children(self._cluster, self._namespace, self._name)
        for note in children.notes:
            self._note_once(note)
        return children

    def _selected(self, children: status.Children) -> list[Json]:
        chosen = self._selection.components
        return [pod for pod in reversed(children.pods) if not chosen or _component(pod) in chosen]

    async def _stream(self, container: ContainerRun) -> None:
        progress = self._progress[container.run]
        try:
            await self._copy(container, follow=True)
        except Missing:
            progress.complete = True
        except Rejected as error:
            if error.code != _NO_LOG_YET:
                progress.complete = True
                self._note_once(f"the log of {container.label} is not included: {error}")
        except Transient:
            return  # after the next list of the pods, the stream is opened again
        else:
            # A running container logs more, even if the API server has ended the response.
            progress.complete = not container.running

    async def _copy(self, container: ContainerRun, *, follow: bool) -> None:
        """Write the lines of a run that were not written yet."""
        progress = self._progress.setdefault(container.run, _Progress())
        before = progress.last
        async with aclosing(self._lines(container, before, follow=follow)) as lines:
            async for line in lines:
                time, _, text = line.partition(" ")
                if not time[:1].isdigit():
                    # The kubelet's own sentence, such as that a log was deleted.
                    self._write(f"{container.label}: {line}")
                    continue
                if time <= before:
                    continue  # the API server selects by whole seconds
                progress.last = time
                shown = line if self._selection.times else text
                self._write(f"{container.label}: {shown}")

    def _lines(self, container: ContainerRun, since: str, *, follow: bool) -> AsyncGenerator[str]:
        return self._cluster.log_lines(
            container.namespace,
            container.pod,
            container.name,
            follow=follow,
            since=since,
            lines=None if since else self._selection.lines,
        )

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


def _component(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get(names.COMPONENT, ""))
