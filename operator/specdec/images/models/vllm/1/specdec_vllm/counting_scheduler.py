"""Schedulers of vLLM that count the draft tokens of each request.

vLLM before 0.28 only has totals over all requests. These schedulers run in the process of the
engine, note what vLLM reports about each request, and send it with the request's outputs in a
field that is otherwise for the transfer of caches between servers.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from specdec_vllm.draft_counts import FIELD, Rows


class _Group:
    """The answers to one request: vLLM decodes each of them as a request of its own."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.running: set[str] = set()


class _Counting:
    """Mixed into a scheduler."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._groups: dict[str, _Group] = {}
        self._ended: list[str] = []
        super().__init__(*arguments, **options)

    def add_request(self, request: Any) -> None:
        group = self._groups.setdefault(_name(request.request_id)[0], _Group())
        group.running.add(request.request_id)
        super().add_request(request)

    def make_spec_decoding_stats(self, stats: Any, **values: Any) -> Any:
        request_id, drafted = values["request_id"], values["num_draft_tokens"]
        name, answer = _name(request_id)
        if drafted and (group := self._groups.get(name)):
            drafted -= (values["num_invalid_spec_tokens"] or {}).get(request_id, 0)
            row = group.rows.setdefault(answer, [0] * (self.num_spec_tokens + 2))
            row[0] += drafted
            row[1 + values["num_accepted_tokens"]] += 1
        return super().make_spec_decoding_stats(stats, **values)

    def update_from_output(self, *arguments: Any) -> Any:
        outputs = super().update_from_output(*arguments)
        for batch in outputs.values():
            for output in batch.outputs:
                group = self._groups.get(_name(output.request_id)[0])
                if group and group.rows and output.kv_transfer_params is None:
                    output.kv_transfer_params = {FIELD: group.rows}
        # The outputs above hold the counts of requests that ended in this step.
        for request_id in self._ended:
            name = _name(request_id)[0]
            if group := self._groups.get(name):
                group.running.discard(request_id)
                if not group.running:
                    del self._groups[name]
        self._ended.clear()
        return outputs

    def _free_request(self, request: Any, *arguments: Any, **options: Any) -> Any:
        self._ended.append(request.request_id)
        return super()._free_request(request, *arguments, **options)


class CountingScheduler(_Counting, Scheduler):
    """vLLM's scheduler."""


class CountingAsyncScheduler(_Counting, AsyncScheduler):
    """vLLM's scheduler that plans a step during the step before."""


def install(config: Any) -> bool:
    """Let the engine of a VllmConfig count; returns whether it does."""
    scheduler = config.scheduler_config
    if (
        config.kv_transfer_config is not None
        or scheduler.scheduler_cls is not None
        or not hasattr(Scheduler, "make_spec_decoding_stats")
    ):
        return False
    scheduler.scheduler_cls = (
        CountingAsyncScheduler if scheduler.async_scheduling else CountingScheduler
    )
    return True


def _name(request_id: str) -> tuple[str, str]:
    """The request and the answer's number; vLLM names answer 2 of several 2_REQUEST."""
    number, separator, name = request_id.partition("_")
    return (name, number) if separator else (request_id, "0")
