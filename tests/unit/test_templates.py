"""Templates name what the plan holds and decide nothing: read in Jinja's own syntax tree."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "templates", ROOT / "examples")
TEMPLATES = sorted(path for folder in FOLDERS for path in folder.rglob("*.j2"))


def is_place(node: nodes.Node) -> bool:
    """A name, an attribute of one, or an item of one."""
    if isinstance(node, nodes.Getattr):
        return is_place(node.node)
    if isinstance(node, nodes.Getitem):
        return is_place(node.node) and isinstance(node.arg, (nodes.Const, nodes.Name))
    return isinstance(node, nodes.Name)


def faults(node: nodes.Node, in_if: bool = False) -> list[str]:
    """What is more than a loop over a place, an include, a flag one level deep, or a place."""

    def fault(what: str) -> list[str]:
        return [f"line {node.lineno}: {what}"]

    match node:
        case nodes.Template():
            parts, out = node.body, []
        case nodes.Output():
            bad = [n for n in node.nodes if not (isinstance(n, nodes.TemplateData) or is_place(n))]
            return [f"line {n.lineno}: {type(n).__name__} in an output" for n in bad]
        case nodes.For():
            out = [] if is_place(node.iter) and is_place(node.target) else fault("for over no name")
            out += fault("for with a condition or an else") if node.test or node.else_ else []
            parts = node.body
        case nodes.If():
            flag = node.test.node if isinstance(node.test, nodes.Not) else node.test
            out = [] if is_place(flag) else fault(f"if on a {type(node.test).__name__}")
            out += fault("if inside an if") if in_if or node.elif_ else []
            parts, in_if = [*node.body, *node.else_], True
        case nodes.Include():
            return [] if isinstance(node.template, nodes.Const) or is_place(node.template) else (
                fault("include of an expression")
            )  # fmt: skip
        case _:
            return fault(type(node).__name__)
    return out + [f for part in parts for f in faults(part, in_if)]


def test_there_are_templates() -> None:
    assert len(TEMPLATES) > 20


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_template_decides_nothing(path: Path) -> None:
    tree = jinja2.Environment(autoescape=False).parse(path.read_text(encoding="utf-8"))
    assert faults(tree) == []


@pytest.mark.parametrize(
    "text",
    [
        "{{ a + 1 }}", "{{ a | upper }}", "{{ f(a) }}", "{% set a = 1 %}", "{% if a == 1 %}x{% endif %}",
        "{% macro m() %}{% endmacro %}", "{% for x in f() %}{% endfor %}",
        "{% for x in y if x %}{% endfor %}",
        "{% if a %}{% if b %}x{% endif %}{% endif %}", "{% if a %}x{% elif b %}y{% endif %}", "{{ 'x' }}",
        "{% include a ~ '.j2' %}", "{{ a if b else c }}", "{% raw %}x{% endraw %}{{ -a }}",
    ],
)  # fmt: skip
def test_the_check_sees_logic(text: str) -> None:
    assert faults(jinja2.Environment(autoescape=False).parse(text))


@pytest.mark.parametrize(
    "text", ["x", "{{ a.b }}{{ a['b'] }}", "{% if a.b %}x{% else %}y{% endif %}"]
)
def test_the_check_lets_names_pass(text: str) -> None:
    assert not faults(jinja2.Environment(autoescape=False).parse(text))
