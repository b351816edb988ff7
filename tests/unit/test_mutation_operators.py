"""Each mutation operator on small text: exactly what it changes, and what it leaves alone."""

from __future__ import annotations

import pytest

from tilegen.mutation import OPERATORS, Language, mutants
from tilegen.mutation.names import sisters
from tilegen.mutation.tokens import Code

C = Language(
    types=r"(int|long|float)(2|4)?|void",
    qualifiers=frozenset({"const", "static"}),
    barriers=frozenset({"wait"}),
    fences={"LOCAL": ("0",)},
    narrower={"long": "int"},
    multiply_adds=frozenset({"fma"}),
    hints=frozenset({"__attribute__"}),
    asserts=r"typedef\s+char\s+\w+\s*\[",
)


def changed(operator: str, body: str, *, parameters: str = "", before: str = "") -> list[str]:
    """The changed bodies, one for each mutant of the operator."""
    head = f"{before}static void f({parameters})\n{{\n"
    text = f"{head}{body}\n}}\n"
    out = []
    for mutant in mutants(text, C, (operator,)):
        assert mutant.operator == operator
        assert mutant.line == text[: mutant.start].count("\n") + 1
        out.append(mutant.apply(text)[len(head) : -len("\n}\n")])
    return out


@pytest.mark.parametrize(
    ("operator", "body", "want"),
    [
        ("barrier", "wait(LOCAL);", [";", "wait(0);"]),
        ("barrier", "go(LOCAL);", []),
        ("comparison", "y = a < b + 1;", ["y = a <= b + 1;", "y = a < (b + 1 - 1);"]),
        ("comparison", "y = a >= b;", ["y = a > b;", "y = a >= (b - 1);"]),
        ("comparison", "y = a == b;", ["y = a != b;"]),
        ("guard", "if (a < b) go();", ["if (1) go();", "if (0) go();", "if (!(a < b)) go();"]),
        ("guard", "y = a ? b : c;", ["y = 1 ? b : c;", "y = 0 ? b : c;", "y = !(a) ? b : c;"]),
        (
            "guard",
            "y = a && b;",
            ["y = a;", "y = b;", "y = a || b;"],
        ),
        ("guard", "for (int i = 0; i < n; ++i) go();", ["for (int i = 0; 0; ++i) go();"]),
        ("bound", "y = min(a, b + 1);", ["y = max(a, b + 1);", "y = (a);", "y = (b + 1);"]),
        ("term", "y = a + b * c;", ["y = (a);", "y = (b * c);", "y = a - b * c;",
                                    "y = a + (b);", "y = a + (c);", "y = a + b + c;"]),
        ("term", "y = a - b;", ["y = (a);", "y = (-(b));", "y = a + b;"]),
        ("term", "y = a / b;", ["y = (a);", "y = (b);", "y = a % b;"]),
        ("term", "y = x ^ m;", ["y = (x);", "y = (m);"]),
        ("term", "y = *p;", []),
        ("term", "y = (float)-x;", []),
        ("term", "const float *q = p;", []),
        ("step", "++i;", ["i += 2;"]),
        ("step", "y += x;", ["y -= x;", "y = x;"]),
        ("literal", "y = x[2];", ["y = x[1];", "y = x[3];"]),
        ("literal", "y = 0;", ["y = (-1);", "y = 1;"]),
        ("literal", "y = 0.5f;", ["y = (-0.5f);", "y = 0.5005f;"]),
        ("name", "y = lda + ldb;", ["y = ldb + ldb;", "y = lda + lda;"]),
        ("name", "y = row0 * M + col0 * N;", ["y = col0 * M + col0 * N;", "y = row0 * N + col0 * N;",
                                              "y = row0 * M + row0 * N;", "y = row0 * M + col0 * M;"]),
        ("statement", "y = a;", [";"]),
        ("statement", "const int y = a;", []),
        ("statement", "return y;", []),
        ("statement", "return;", [";"]),
        ("statement", "v = g(v); v = h(v);", ["; v = h(v);", "v = g(v); ;", "v = h(v); v = g(v);"]),
        ("argument", "y = fma(a, b, c);", ["y = fma(a, c, b);"]),
        ("argument", "y = f(a, b);", ["y = f(b, a);"]),
        ("argument", "y = g(a, b);", []),
        ("narrow", "const long y = (long)x;", ["const int y = (long)x;", "const long y = (int)x;"]),
    ],
)  # fmt: skip
def test_what_an_operator_changes(operator: str, body: str, want: list[str]) -> None:
    got = changed(operator, body)
    assert sorted(got) == sorted(want)


def test_constants_of_an_enum() -> None:
    text = "enum { A = 2, B = A * 3 };\n"
    got = {m.apply(text) for m in mutants(text, C, ("constant",))}
    assert got == {"enum { A = 2, B = (A * 3) + 1 };\n", "enum { A = 2, B = (A * 3) - 1 };\n"}
    assert {m.function for m in mutants(text, C)} == {"enum"}


def test_constants_of_a_constexpr_outside_of_functions() -> None:
    text = (
        "constexpr int A = f(2, 1), B = A * 3;\nvoid g(int x)\n{\n    constexpr int C = x + B;\n}\n"
    )
    code = Code(text, C)
    assert code.constants == {"A", "B"}
    got = {m.after for m in mutants(text, C, ("constant",))}
    assert got == {
        f"constexpr int A = {a}, B = {b};"
        for a, b in (
            *(("f(2, 1)", f"(A * 3) {turn} 1") for turn in "+-"),
            *((f"(f(2, 1)) {turn} 1", "A * 3") for turn in "+-"),
        )
    }
    places = {m.function for m in mutants(text, C, ("term", "literal"))}
    assert places == {"enum", "g"}


@pytest.mark.parametrize("scope", ["namespace one", "namespace one::two", 'extern "C"'])
def test_what_stands_in_a_namespace_is_read_like_what_stands_outside(scope: str) -> None:
    inside = "constexpr int A = 2, B = A * 3;\nvoid f(int x)\n{\n    g(x + B);\n}\n"
    text = f"{scope} {{\n{inside}}}\n"
    got = [(m.function, m.operator, m.before, m.after) for m in mutants(text, C)]
    assert got == [(m.function, m.operator, m.before, m.after) for m in mutants(inside, C)]
    assert {"enum", "f"} <= {function for function, *_ in got}


def test_parameters_are_narrowed_and_otherwise_left_alone() -> None:
    text = "static void f(const long n, const float *a)\n{\n}\n"
    assert [m.apply(text) for m in mutants(text, C)] == [text.replace("long", "int")]


def test_comments_strings_directives_hints_and_checks_are_left_alone() -> None:
    text = (
        "// a < b + 1\n/* a < b */\n#pragma unroll 4\n"
        "typedef char as_planned[2 * 3 == 6 ? 1 : -1];\n"
        'static __attribute__((aligned(16))) void f(void)\n{\n    /* 1 + 2 */ go("1 < 2");\n}\n'
    )
    assert [m.operator for m in mutants(text, C)] == ["statement"]


def test_no_two_mutants_are_alike_and_none_is_the_text() -> None:
    text = "static void f(long a, long b)\n{\n    for (int i = 0; i < 4; ++i)\n        a += b * i + 1;\n}\n"
    texts = [m.apply(text) for m in mutants(text, C)]
    assert len(set(texts)) == len(texts) > 15
    assert text not in texts


def test_the_same_place_of_another_kernel_has_the_same_key() -> None:
    def keys(width: int) -> set[tuple[str, ...]]:
        text = f"static void f_v{width}(float{width} *a)\n{{\n    a[{width}] = {width} * i;\n}}\n"
        return {m.key for m in mutants(text, C)}

    assert keys(4) == keys(2)


def test_one_more_and_one_less_and_always_and_never_are_told_apart_by_their_keys() -> None:
    for operator, body in (("literal", "a = b * 3;"), ("guard", "if (a == b) return;")):
        text = f"static void f(int a, int b)\n{{\n    {body}\n}}\n"
        some = mutants(text, C, (operator,))
        assert len({m.key for m in some}) == len(some) > 1


def test_every_operator_says_what_it_does() -> None:
    assert all(operator.__doc__ for operator in OPERATORS.values())


def test_sisters_stand_next_to_each_other() -> None:
    assert list(sisters("a_batch_stride", {"b_batch_stride", "c_batch_stride"})) == [
        "b_batch_stride",
        "c_batch_stride",
    ]
    assert list(sisters("BLOCK_M", {"BLOCK_N", "WARP_M", "lda"})) == ["WARP_M", "BLOCK_N"]
    assert list(sisters("count", {"row"})) == []


@pytest.mark.parametrize(
    ("text", "mark", "want"),
    [
        ("x = a * b + c % d - e;", "+", ("a * b", "c % d")),
        ("x = a - b - c;", "-", ("a", "b")),
        ("x = (a + b) * f(c, d)[2];", "*", ("(a + b)", "f(c, d)[2]")),
        ("if (a < b) *p = c * d;", "<", ("a", "b")),
    ],
)
def test_operands(text: str, mark: str, want: tuple[str, str]) -> None:
    code = Code(text, C)
    at = next(i for i, t in enumerate(code.tokens) if t.text == mark and code.is_binary(i))
    first, last = code.operands(at)
    assert (code.part(first, at - 1), code.part(at + 1, last)) == want
