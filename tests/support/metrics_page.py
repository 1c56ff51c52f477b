"""A page of metrics as a server with a BLS reports it."""


def page(**changes: float) -> str:
    """Return a server's page of metrics, in which `changes` replace numbers."""
    n = {
        "requests": 10,
        "rounds": 100,
        "drafted": 400,
        "accepted": 200,
        "generated": 300,
        "fallbacks": 2,
        "in_flight": 3,
        "waiting": 1,
        "kv": 0.25,
    } | changes
    bls = 'model="tensorrt_llm_bls",version="1"'
    return f"""# HELP nv_inference_request_success Number of successful inference requests
# TYPE nv_inference_request_success counter
nv_inference_request_success{{{bls}}} {n["requests"]}
nv_inference_request_success{{model="ensemble",version="1"}} 5
nv_inference_request_success{{model="tensorrt_llm",version="1"}} 70000
# HELP nv_inference_pending_request_count Instantaneous number of pending requests
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{{{bls}}} {n["waiting"]}
nv_inference_pending_request_count{{model="tensorrt_llm",version="1"}} 9
# TYPE specdec_rounds_total counter
specdec_rounds_total{{{bls}}} {n["rounds"]}
# TYPE specdec_draft_tokens_total counter
specdec_draft_tokens_total{{{bls}}} {n["drafted"]}
# TYPE specdec_accepted_tokens_total counter
specdec_accepted_tokens_total{{{bls}}} {n["accepted"]}
{_by_source(n)}# TYPE specdec_generated_tokens_total counter
specdec_generated_tokens_total{{{bls}}} {n["generated"]}
# TYPE specdec_fallback_total counter
specdec_fallback_total{{{bls},reason="draft_error"}} {n["fallbacks"]}
specdec_fallback_total{{{bls},reason="beam_width"}} 1
# TYPE specdec_requests_in_flight gauge
specdec_requests_in_flight{{{bls}}} {n["in_flight"]}
# TYPE specdec_draft_length gauge
specdec_draft_length{{{bls}}} 4
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction",model="tensorrt_llm"}} {n["kv"]}
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction",model="tensorrt_llm_draft"}} 0.1
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="max",model="tensorrt_llm"}} 4096
"""


def _by_source(counts: dict[str, float]) -> str:
    """Return counters for each source in the keys of `counts`, such as `drafted lookup`."""
    sources = {key.partition(" ")[2] for key in counts} - {""}
    lines = []
    for kind, metric in (("drafted", "draft"), ("accepted", "accepted")):
        name = f"specdec_{metric}_tokens_by_source_total"
        lines.append(f"# TYPE {name} counter" if sources else "")
        lines += [
            f'{name}{{model="tensorrt_llm_bls",source="{source}"}} {counts[f"{kind} {source}"]}'
            for source in sorted(sources)
        ]
    return "".join(f"{line}\n" for line in lines if line)


LATER = {
    "requests": 30,
    "rounds": 120,
    "drafted": 480,
    "accepted": 260,
    "generated": 380,
    "fallbacks": 3,
}
