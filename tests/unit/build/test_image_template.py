"""Templates of Triton's models, which are read without protobuf."""

import image_template
import pytest
from image_template import Template, TemplateError, Tensor

LOOSE = r"""
# input [ { name: "commented" } ]
name: "one" backend: 'python' max_batch_size: ${triton_max_batch_size}
input [
  {
      name: "text_input",
      data_type: TYPE_STRING,
	dims: [ 1 ]
  },
  { name: "logits" data_type: ${logits_datatype} dims: [ -1, -1 ] optional: true
    reshape: { shape: [ ] } }
]
input { name: "single" data_type: TYPE_INT32 dims: 1 optional: false }
output: [ { name: "text" "_" 'output'; data_type: TYPE_STRING dims: [ -1 ] } ]
parameters { key: "a" value: { string_value: "${a}" } },
parameters: { key: "b\"}" value < string_value: "{ not a message }" > }
ensemble_scheduling { step [ { model_name: "x" input_map { key: "Q", value: "q" } }, { } ] }
"""


def test_everything_a_template_declares_is_read() -> None:
    assert image_template.read(LOOSE) == Template(
        inputs=(
            Tensor("text_input", "TYPE_STRING", optional=False),
            Tensor("logits", "${logits_datatype}", optional=True),
            Tensor("single", "TYPE_INT32", optional=False),
        ),
        outputs=(Tensor("text_output", "TYPE_STRING", optional=False),),
        keys=("a", r"b\"}"),
    )


def test_an_empty_template_declares_nothing() -> None:
    assert image_template.read("") == Template((), (), ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("input [", "line 1: the end where a value belongs"),
        ("name: \n\n}", "line 3: } where a value belongs"),
        ("name { a: 1", "the end where a field belongs"),
        ('name: "x"\n"y" z', "where a field belongs|where a value belongs"),
        ("name: 1\n@", "line 2: '@' belongs to no protobuf text"),
        ('name: "open', "line 1: '\"' belongs to no protobuf text"),
        ("input: 5", "input is '5', not a message"),
        ("input { data_type: TYPE_INT32 }", "a tensor or a parameter has no name"),
        ('input { name: "x" }', "a tensor or a parameter has no data_type"),
        ("parameters { }", "a tensor or a parameter has no key"),
        ('"name": 1', 'line 1: "name" where a field belongs'),
        ("a {" * 40, "nested deeper than 16 levels"),
        ("a: [" * 40, "where a value belongs"),
    ],
)
def test_what_is_no_template_is_reported_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        image_template.read(text)
