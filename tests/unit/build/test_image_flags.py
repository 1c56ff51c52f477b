"""The flags of a program, read from its syntax tree."""

import image_flags
import pytest
from image_flags import Definitions, Flag, Helper

PROGRAM = """
import argparse
from lib.plugins import Config, add_flags
from lib import other

NAMES = ["not_a_flag"]

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", type=str, required=True)
    parser.add_argument("--dtype", default="auto", choices=["auto", "float16", None])
    parser.add_argument("--max_seq_len", "--max_decoder_seq_len", type=int, required=True)
    parser.add_argument("-t", "--storage-type")
    parser.add_argument("positional")
    group = parser.add_argument_group("More")
    group.add_argument("--fast", action="store_true", help="--not_a_flag")
    group.add_argument("--precision", nargs="?", const="int8", choices=("int8", "int4"))
    group.add_argument("--level", choices=levels.keys())
    add_flags(group)
    other(Config)
    return parser.parse_args()
"""
HELPER = """
OPTIONS = ["a_plugin", "b_plugin"]
UNUSED = ["c_plugin"]

def add_flags(parser):
    for field in fields():
        if field not in OPTIONS:
            continue
        parser.add_argument("--" + field, type=str, choices=[x for x in field])
        parser.add_argument("--literal", type=int)

def add_others(parser):
    parser.add_argument(f"--{name()}")
"""


def test_flags_of_a_program() -> None:
    assert image_flags.defined(PROGRAM) == Definitions(
        {
            "model_dir": Flag(False, None, True),
            "dtype": Flag(False, ("auto", "float16")),
            "max_seq_len": Flag(False),
            "max_decoder_seq_len": Flag(False),
            "storage-type": Flag(False),
            "fast": Flag(True),
            "precision": Flag(None, ("int8", "int4")),
            "level": Flag(False),
        }
    )
    assert image_flags.helpers(PROGRAM) == (Helper("lib.plugins", "add_flags"),)


def test_flags_that_a_helper_takes_from_a_list() -> None:
    assert image_flags.defined(HELPER, "add_flags") == Definitions(
        {"a_plugin": Flag(), "b_plugin": Flag(), "literal": Flag(False)}
    )


def test_flags_whose_names_the_source_does_not_show_leave_the_definitions_open() -> None:
    open_ = image_flags.defined(HELPER, "add_others")
    assert not open_.complete
    assert list(image_flags.problems(open_, ["--anything=1"])) == []
    assert not image_flags.defined(HELPER, "missing").complete


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def add_flags(parser): ...", None),
        ("from .plugin import add_flags", Helper("plugin", "add_flags", 1)),
        ("from a.b import x as add_flags", Helper("a.b", "x")),
        ("from .plugin import *", Helper("plugin", "add_flags", 1)),
        ("import argparse", None),
    ],
)
def test_a_function_is_followed_to_where_it_comes_from(
    source: str, expected: Helper | None
) -> None:
    assert image_flags.reexport(source, "add_flags") == expected


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (["--dtype=auto", "--fast", "--precision", "--level=9"], []),
        (["--dty=auto"], []),
        (["--max=1"], ["does not define --max"]),
        (["--absent=1"], ["does not define --absent"]),
        (["--dtype=int4"], ["does not take int4 for --dtype, but auto, float16"]),
        (["--fast=1"], ["takes no value for --fast"]),
        (["--dtype"], ["needs a value for --dtype"]),
    ],
)
def test_arguments_that_a_program_refuses(arguments: list[str], problems: list[str]) -> None:
    given = ["--model_dir=/x", *arguments]
    assert list(image_flags.problems(image_flags.defined(PROGRAM), given)) == problems


def test_a_flag_that_a_program_requires_has_to_be_passed() -> None:
    assert list(image_flags.problems(image_flags.defined(PROGRAM), ["--fast"])) == [
        "requires --model_dir, which a build does not pass"
    ]
