"""The exact text of a configuration, with white space, which the golden files omit."""

from specdec.triton.contract import Step, Tensor
from specdec.triton.pbtxt import Batching, ModelConfig, ensemble, model

TOKENS = Tensor("tokens", "TYPE_INT32", (-1, 3), optional=True, ragged=True)
LENGTH = Tensor("length", "TYPE_INT32", (1,), scalar=True)
MODEL = """\
name: "engine"
backend: "tensorrtllm"
max_batch_size: 16
model_transaction_policy {
  decoupled: true
}
dynamic_batching {
  preferred_batch_size: [ 16 ]
  max_queue_delay_microseconds: 5
  default_queue_policy {
    max_queue_size: 9
  }
}
input {
  name: "tokens"
  data_type: TYPE_INT32
  dims: [ -1, 3 ]
  optional: true
  allow_ragged_batch: true
}
output {
  name: "length"
  data_type: TYPE_INT32
  dims: [ 1 ]
  reshape { shape: [ ] }
}
instance_group [
  {
    count: 2
    kind: KIND_CPU
  }
]
parameters {
  key: "path"
  value { string_value: "a \\"b\\"" }
}
"""
ENSEMBLE = """\
name: "all"
platform: "ensemble"
max_batch_size: 4
input {
  name: "length"
  data_type: TYPE_INT32
  dims: [ 1 ]
  reshape { shape: [ ] }
}
ensemble_scheduling {
  step {
    model_name: "engine"
    model_version: -1
    input_map { key: "tokens" value: "_TOKENS" }
    output_map { key: "length" value: "_LENGTH" }
  }
}
"""


def test_a_model_is_laid_out_as_documented() -> None:
    config = ModelConfig(
        name="engine",
        backend="tensorrtllm",
        max_batch_size=16,
        inputs=(TOKENS,),
        outputs=(LENGTH,),
        parameters=(("path", 'a "b"'),),
        batching=Batching(preferred=16, max_queue_delay_us=5, max_queue_size=9),
        decoupled=True,
        instances=2,
    )
    assert model(config) == MODEL


def test_an_ensemble_is_laid_out_as_documented() -> None:
    step = Step("engine", (("tokens", "_TOKENS"),), (("length", "_LENGTH"),))
    assert ensemble("all", 4, (LENGTH,), (), (step,)) == ENSEMBLE
