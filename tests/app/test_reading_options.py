"""Every option for reading files is declared once: the command, Python, JSON and the echoed command agree."""

import inspect
import json
import shlex
from dataclasses import asdict, replace

import pytest
from typer.main import get_command

import unpooled
from unpooled.app.cli import app
from unpooled.app.cli.options import ReadingOptions
from unpooled.app.job import Job
from unpooled.errors import InputError
from unpooled.options.declaration import flag
from unpooled.options.reading import OPTIONS, Reading, ReadingArguments

pytestmark = pytest.mark.quick

FULL = Reading(
    exclude=("id", "body mass"),
    categorical=("cp",),
    ordinal=(("grade", ("low", "mid", "high")),),
    numbers=("dose_no",),
    na=("-9", "chol=0"),
    delimiter=";",
    decimal=",",
    encoding="cp1252",
    recode=(("sex", "M", "male"), ("sex", "F", "female")),
    site_column="clinic",
    query="cohort.sql",
    sheet="a sheet",
    long=("person", "concept", "value"),
)


def command_of(path):
    found = get_command(app)
    for name in path.split():
        found = found.commands[name]
    return found


def given_by(words):
    """The values that a command passes on for these words: texts, in lists if the option may be repeated."""
    given = {}
    for option, text in zip(words[::2], words[1::2], strict=True):
        (name,) = (name for name in OPTIONS if flag(name) == option)
        given[name] = [*given.get(name, []), text] if OPTIONS[name].kind.several else text
    return given


def test_the_example_sets_every_option():
    unset = Reading()
    assert [name for name in OPTIONS if getattr(FULL, name) == getattr(unset, name)] == []


def test_the_words_of_a_command_give_the_same_options():
    assert Reading.from_command(given_by(FULL.words())) == FULL
    assert Reading().words() == []
    assert {"query", "sheet", "long"}.isdisjoint(given_by(FULL.words(of_files=False)))


def test_the_json_gives_the_same_options():
    assert Reading.from_json(json.loads(json.dumps(asdict(FULL)))) == FULL
    job = Job(("a.csv",), (2,), FULL)
    assert Job.from_json(json.loads(json.dumps(job.to_json()))).reading == FULL
    assert shlex.split(job.command())[5:][: len(FULL.words())] == FULL.words()


def test_the_arguments_of_python_give_the_same_options():
    arguments = {name: getattr(FULL, name) for name in ReadingArguments.__annotations__}
    arguments["ordinal"] = {"grade": ["low", "mid", "high"]}
    arguments["recode"] = {"sex": {"M": "male", "F": "female"}}
    assert Reading.from_arguments(arguments) == replace(FULL, query=None)


def test_every_option_is_in_the_commands_and_an_argument_of_cluster():
    assert set(ReadingArguments.__annotations__) == set(OPTIONS) - {"query"}  # Python has ``Database``
    taken = inspect.signature(unpooled.cluster).parameters
    assert set(ReadingArguments.__annotations__) <= set(taken)
    for name in ReadingArguments.__annotations__:
        assert f"\n    {name} : " in unpooled.cluster.__doc__
    for path in ("fit", "compare", "site join", "site summarize"):
        flags = {one for parameter in command_of(path).params for one in parameter.opts}
        of_site = {flag(name) for name, declared in OPTIONS.items() if declared.of_site}
        assert of_site <= flags, path
    for path in ("federation run", "federation export-job"):
        hidden = {parameter.name for parameter in command_of(path).params if parameter.hidden}
        assert {name for name, declared in OPTIONS.items() if declared.of_site} <= hidden


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("delimiter", ";;", "--delimiter must be one character, got ';;'"),
        ("decimal", "x", "--decimal must be '.' or ',', got 'x'"),
        ("encoding", "none", "--encoding: there is no encoding 'none'"),
        ("recode", ["sex"], "--recode must have the form column:spelling=category"),
        ("ordinal", ["grade:low"], "--ordinal must have the form column:low<mid<high"),
        ("long", "a,b", "--long must name three columns"),
    ],
)
def test_a_value_without_a_meaning_is_refused_by_name(option, text, message):
    with pytest.raises(InputError, match=message):
        ReadingOptions(**{option: text}).reading()


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("delimiter", ";;", "delimiter must be one character, got ';;'"),
        ("decimal", 3, "decimal must be text or None, got 3"),
        ("exclude", 3, "exclude must be the name of a column, or a list of names, got 3"),
        ("na", [True], "na must be a text or a number that means missing"),
        ("recode", "sex", "recode must be a mapping"),
        ("ordinal", {"grade": "low<high"}, "ordinal must be a mapping"),
        ("long", ("a", "a", "b"), "long must name three columns"),
    ],
)
def test_an_argument_without_a_meaning_is_refused_by_name(argument, value, message):
    with pytest.raises(InputError, match=message):
        unpooled.cluster({"a": [[0.0], [1.0]]}, 1, **{argument: value})


def test_an_unknown_argument_is_an_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'exlude'"):
        unpooled.cluster({"a": [[0.0], [1.0]]}, 1, exlude="x")
