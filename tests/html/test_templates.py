"""Markup in any value of any template appears as text: every output of every template is tried."""

import contextlib
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import ChoiceLoader, DictLoader, Environment, meta, nodes
from jinja2.visitor import NodeTransformer
from markupsafe import Markup
from tools.check_templates import in_code, in_script, in_template

from unpooled.html import rendering
from unpooled.html.svg import drawing, tag, text

pytestmark = pytest.mark.quick

REPRODUCTION = Path(__file__).parents[2] / "reproduction" / "templates"
ENVIRONMENT = rendering.environment(REPRODUCTION)
PAGES = sorted(name for name in ENVIRONMENT.list_templates() if name.endswith(".html"))
MARKUP = """<hostile a="1">&'" hostile="1" x='<script>hostile()</script><!-- {{ hostile }}"""
FRAME = ("{{ section }}-heading",)  # a heading in the section that the script of live.html replaces
TRIES = 300  # of a page, each with other decisions; a page whose outputs were all reached needs only FEWEST
FEWEST = 10


class Hostile:
    """Markup as a value: as text, as a number, in its fields and items, and in what it returns.

    A comparison with it has a random result, so that all branches of a template are tried.
    """

    def __init__(self, chance):
        self._chance = chance

    def __str__(self):
        return MARKUP

    def __format__(self, spec):
        return MARKUP

    def __getattr__(self, name):
        if name.startswith("__"):  # it has no ``__html__``: it is not markup
            raise AttributeError(name)
        return self

    def __bool__(self):
        return self._chance.random() < 0.5

    def __len__(self):
        return self._chance.choice((0, 1, 26))

    def __hash__(self):
        return 1

    def __call__(self, *_, **__):
        return self

    def _random(self, _):
        return self._chance.random() < 0.5

    def _hostile(self, *_):
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _random
    __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __abs__ = _hostile


class Watched(NodeTransformer):
    """Wraps the outputs and the loops of a template, so that the environment sees their values.

    Each side of a condition within an expression counts as an output of its own.
    """

    def __init__(self, environment, name):
        self._environment, self._name = environment, name

    def visit_Output(self, node):  # noqa: N802
        self.generic_visit(node)
        node.nodes = [self._output(child) for child in node.nodes]
        return node

    def visit_CondExpr(self, node):  # noqa: N802
        self.generic_visit(node)
        node.expr1, node.expr2 = self._output(node.expr1), node.expr2 and self._output(node.expr2)
        return node

    def visit_Or(self, node):  # noqa: N802
        self.generic_visit(node)
        node.right = self._output(node.right)
        return node

    def visit_And(self, node):  # noqa: N802
        return self.visit_Or(node)

    def _output(self, child):
        if isinstance(child, nodes.TemplateData):
            return child
        place = (self._name, child.lineno, len(self._environment.outputs))
        self._environment.outputs.add(place)
        return self._call("_output", child.lineno, nodes.Const(place), child)

    def visit_For(self, node):  # noqa: N802
        self.generic_visit(node)
        width = len(node.target.items) if isinstance(node.target, nodes.Tuple) else 1
        node.iter = self._call("_loop", node.lineno, node.iter, nodes.Const(width))
        return node

    @staticmethod
    def _call(name, line, *values):
        made = nodes.Call(nodes.Name(name, "load"), list(values), [], None, None)
        return made.set_lineno(line, override=True) or made


class Watching(Environment):
    """The environment of the pages, with the same escaping, in which hostile values can be anything."""

    def __init__(self, real, chance, loader=None):
        super().__init__(
            loader=loader or real.loader,
            autoescape=real.autoescape,
            undefined=real.undefined,
            trim_blocks=real.trim_blocks,
            lstrip_blocks=real.lstrip_blocks,
        )
        self.chance, self.outputs, self.reached, self.hostile = chance, set(), set(), Hostile(chance)
        self.filters = {name: self._tolerant(function) for name, function in real.filters.items()}
        self.tests = {name: lambda *_: chance.random() < 0.5 for name in real.tests}
        self.globals = {
            **{name: self._tolerant(value) for name, value in real.globals.items() if callable(value)},
            "_output": self._output,
            "_loop": self._loop,
        }
        self.globals["e"] = self.get_template("elements.html").module
        sources = {name: self.loader.get_source(self, name)[0] for name in self.list_templates(["html"])}
        self._trees = {name: real.parse(source) for name, source in sources.items()}
        self._variables = set().union(*map(meta.find_undeclared_variables, self._trees.values()))

    def _parse(self, source, name, filename):
        return Watched(self, name).visit(super()._parse(source, name, filename))

    def _output(self, place, value):
        self.reached.add(place)
        return value

    def _loop(self, values, width):
        if not isinstance(values, Hostile):
            return values
        return [self.hostile if width == 1 else [self.hostile] * width] * self.chance.randrange(3)

    def _tolerant(self, function):
        """Return a function that can be called with hostile values.

        It returns a hostile value, unless the function marks hostile text, or a list or mapping of it, as
        markup: then it returns what the function returns.
        """

        def call(*values, **named):
            if not (self._any(values) or self._any(named.values())):
                return function(*values, **named)
            for hostile in (MARKUP, [MARKUP], {MARKUP: MARKUP}):
                texts = {name: self._as(hostile, value) for name, value in named.items()}
                with contextlib.suppress(Exception):
                    made = function(*(self._as(hostile, value) for value in values), **texts)
                    made = list(made) if isinstance(made, Iterator) else made
                    if any(hasattr(one, "__html__") for one in (made if isinstance(made, list) else [made])):
                        return made
            return self.hostile

        call.__dict__.update(getattr(function, "__dict__", {}))  # what a filter wants as its first argument
        return call

    @staticmethod
    def _as(hostile, value):
        return hostile if Watching._any([value]) else value

    @staticmethod
    def _any(values):
        return any(isinstance(v, Hostile) or (isinstance(v, list) and Watching._any(v)) for v in values)

    def getitem(self, obj, argument):
        return self.hostile if isinstance(argument, Hostile) else super().getitem(obj, argument)

    def render_hostile(self, name):
        """Return a template, and the results of its macros, with hostile values for all variables."""
        values = {variable: self.hostile for variable in self._variables if variable not in self.globals}
        module = self.get_template(name).make_module(values)
        parts = [self.get_template(name).render(values), str(module)]
        for macro in self._trees[name].find_all(nodes.Macro):
            given = {argument.name: self.hostile for argument in macro.args}
            if any(used.name == "caller" for used in macro.find_all(nodes.Name)):
                given["caller"] = self.hostile
            parts.append(str(getattr(module, macro.name)(**given)))
        return "\n".join(parts)


class Found(HTMLParser):
    """The hostile elements and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.found, self._code = [], False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        names = [tag, *(name for name, _ in attributes)]
        self.found += [name for name in names if "hostile" in name]
        self.found += [name for name, value in attributes if name[:2] == "on" and "hostile" in str(value)]
        self._code = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._code = False

    def handle_data(self, data):
        if self._code and "hostile" in data:
            self.found.append("code")

    def handle_comment(self, data):
        self.found += ["comment"] if "hostile" in data else []


def rendered_hostile(environment, name):
    """Return what is unescaped in a template, and its outputs that were never reached."""
    found = set()
    for tries in range(TRIES):
        page = environment.render_hostile(name)
        found.update(Found(page).found)
        own = {place for place in environment.outputs if place[0] == name}
        if tries >= FEWEST and own <= environment.reached:
            break
    return found, own - environment.reached


@pytest.mark.parametrize("name", PAGES)
def test_markup_in_every_variable_is_text(name):
    assert ENVIRONMENT.autoescape is True
    environment = Watching(ENVIRONMENT, random.Random(name))
    found, missed = rendered_hostile(environment, name)
    assert found == set()
    assert missed == set()
    source = ENVIRONMENT.loader.get_source(ENVIRONMENT, name)[0]
    written = [kind for _, kind, _ in ENVIRONMENT.lex(source)].count("variable_begin")
    assert len({place for place in environment.outputs if place[0] == name}) >= written


@pytest.mark.parametrize(
    "source",
    [
        "<p>{{ value|safe }}</p>",
        "<p>{% autoescape false %}{{ value }}{% endautoescape %}</p>",
        "<p title={{ value }}>a</p>",
        "{% for one in values %}{% if one.name == 'b' %}{{ one|safe }}{% endif %}{% endfor %}",
        "{% macro m(a) %}{{ a|safe }}{% endmacro %}{{ m(value) }}",
        "{{ 'a' if one else value|safe }}",
        "{{ one or value|safe }}",
        "{{ values|map('safe')|join }}",
        "{% filter striptags %}{{ value }}{% endfilter %}",
        "{{ e.sentences([value|safe]) }}",
        "<style>{{ value }}</style>",
        "<p onclick='{{ value }}'>a</p>",
    ],
)
def test_a_template_that_does_not_escape_is_found(source):
    assert rendered_hostile(watching(source), "bad.html")[0]
    assert list(in_template(source))


def watching(source):
    """Return an environment with one template more, ``bad.html``."""
    loader = ChoiceLoader([DictLoader({"bad.html": source}), ENVIRONMENT.loader])
    return Watching(ENVIRONMENT, random.Random(0), loader)


def test_a_filter_that_marks_text_as_markup_is_found(monkeypatch):
    monkeypatch.setitem(ENVIRONMENT.filters, "bold", lambda text: Markup(f"<b>{text}</b>"))
    assert rendered_hostile(watching("{{ value|bold }}"), "bad.html")[0]
    monkeypatch.setitem(ENVIRONMENT.filters, "bold", lambda text: Markup("<b>{}</b>").format(text))
    assert not rendered_hostile(watching("{{ value|bold }}"), "bad.html")[0]


def test_code_that_marks_text_as_markup_is_found(tmp_path):
    path = tmp_path / "page.py"
    for source in (
        "from markupsafe import Markup\n",
        "class A:\n    def __html__(self):\n        return ''\n",
        "Environment(autoescape=False)\n",
        "from jinja2 import Template\n",
    ):
        path.write_text(source, encoding="utf-8")
        assert list(in_code(path)), source
    path.write_text("# Markup\nEnvironment(autoescape=True)\n", encoding="utf-8")
    assert list(in_code(path)) == []


def test_a_value_in_a_script_is_found():
    assert list(in_script("let a = 1;\nlet b = {{ value }};"))
    assert list(in_script("let b = {c: {d: 1}};")) == []


def test_a_chart_escapes_texts_values_and_labels():
    drawn = drawing(
        10, 10, [text(1.0, 2.0, MARKUP, MARKUP), tag("g", tag("title", MARKUP), id=MARKUP)], MARKUP
    )
    assert Found(drawn).found == []
    assert drawn.count("&lt;hostile") == 5


def test_an_unknown_name_is_an_error():
    with pytest.raises(Exception, match="'headline' is undefined"):
        rendering.render("notebook.html", head=[], rows=[], left=())


@pytest.mark.parametrize("name", PAGES)
def test_links_and_labels_of_a_template_have_targets(name):
    source = ENVIRONMENT.loader.get_source(ENVIRONMENT, name)[0]
    pointed = re.findall(r'href="#([^"]+)"', source) + re.findall(r'aria-labelledby="([^"]+)"', source)
    assert [one for one in pointed if f'id="{one}"' not in source and one not in FRAME] == []
    assert "javascript:" not in source
