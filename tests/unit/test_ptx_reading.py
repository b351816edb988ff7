"""Inline PTX: how asm statements are found in C++, taken apart, and their PTX parsed."""

from __future__ import annotations

import pytest

from tilegen.emulator.ptx.findings import Refused
from tilegen.emulator.ptx.lexer import tokens
from tilegen.emulator.ptx.parser import (
    Address,
    AsmOperand,
    Declaration,
    Immediate,
    Instruction,
    Label,
    Name,
    Node,
    Not,
    Pair,
    Vector,
    parse,
)
from tilegen.emulator.ptx.statements import Statement, one_line, statements


def ptx(text: str, *, extended: bool = True) -> list[Node]:
    return parse(
        tokens(text, [1 + text[:i].count("\n") for i in range(len(text))], extended=extended)
    )


def only(text: str) -> Instruction:
    (node,) = ptx(text)
    assert isinstance(node, Instruction)
    return node


def first(text: str) -> Statement:
    return next(statements(text))


def test_pieces_comments_and_both_kinds_of_colons() -> None:
    text = """
void f() {
  asm volatile ("mov.u32 %0, %1;\\n"  // the first
      /* the
      second */ "add.u32 %0, %0, 1;"
      R"(sub.u32 %0, %0, 1;
         nop;)"
      : "=r"(x[0]) : "r"(g(a, "b:c)")), "n"(sizeof(T) /* ) */ + N::v) : "memory", "cc");
}
"""
    found = first(text)
    assert found.error is None
    assert found.volatile
    assert found.line == 3
    assert found.template.startswith("mov.u32 %0, %1;\nadd.u32")
    assert [found.lines[found.template.index(w)] for w in ("mov", "add", "sub", "nop")] == [
        3,
        5,
        6,
        7,
    ]
    assert [(o.mode, o.constraint) for o in found.operands] == [("=", "r"), ("", "r"), ("", "n")]
    assert found.operands[1].expression == 'g(a, "b:c)")'
    assert " ".join(found.operands[2].expression.split()) == "sizeof(T) + N::v"
    assert found.clobbers == ("memory", "cc")
    assert text[found.start : found.end].endswith('"cc")')


def test_empty_sections_and_no_sections() -> None:
    assert first('asm("x;" ::"r"(a));').operands[0].constraint == "r"
    assert first('asm volatile("x;" ::: "memory");').clobbers == ("memory",)
    assert not first('asm("mov.u32 a, %laneid;");').extended
    assert first('__asm__ __volatile__("x;");').volatile


def test_what_only_looks_like_asm() -> None:
    text = """
// asm("a;");
/* asm("b;"); */ const char* s = "asm(\\"c;\\")"; int asm_ = 1'000'000; char c = '"';
int wasm(int); auto r = R"(asm("d;"))";
// continued \\
asm("e;");
asm("f;");
"""
    assert [s.template for s in statements(text)] == ["f;"]


def test_macros_in_the_string() -> None:
    text = '#define SHAPE "m16n8k16"\n#define TYPES ".f32" \\\n  ".f16"\nasm("mma." SHAPE TYPES ";");\nasm(NO ";");'
    good, bad = statements(text)
    assert good.template == "mma.m16n8k16.f32.f16;"
    assert bad.error is not None
    assert "NO" in str(bad.error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('asm("x;" : "r"(a));', 'starts with "=" or "+"'),
        ('asm("x;" :: "=r"(a));', 'has no "=" or "+"'),
        ('asm("x;" :: "q"(a));', "is not known"),
        ('asm("x;" : [a] "=r"(a));', "names"),
        ('#define F(x) asm("ldmatrix.x" #x ";")', "'#'"),
        ('asm("\\q;");', "escape"),
    ],
)
def test_statements_that_are_refused(text: str, words: str) -> None:
    error = first(text).error
    assert error is not None
    assert words in str(error)


def test_expressions_come_onto_one_line() -> None:
    assert one_line('a /* b */ +\n  // c\n  f("//x")') == 'a + f("//x")'


def test_instructions_and_operands() -> None:
    node = only(
        "@!%p mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1}, [%2 + -16], {a, _}, 0x1F;"
    )
    assert node.negated
    assert node.guard == Name("%p")
    assert node.opcode == "mma"
    assert node.modifiers[2:4] == ("m16n8k16", "row")
    assert node.operands == (
        Vector((AsmOperand(0), AsmOperand(1))),
        Address(AsmOperand(2), Immediate(16), True),
        Vector((Name("a"), Name("_"))),
        Immediate(31),
    )
    assert only("shfl.sync.idx.b32 %0|p, %1, !q, -1;").operands[0] == Pair(AsmOperand(0), Name("p"))
    assert only("vote.sync.any.pred p, !q, 7;").operands[1] == Not(Name("q"))
    assert only("mov.u32 %0, %%tid.x;").operands[1] == Name("%tid.x")
    tensor = only(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, 0}], [%3];"
    )
    assert tensor.modifiers[3:5] == ("2d", "shared::cluster")
    assert tensor.operands[1] == Address(AsmOperand(1), coordinates=(AsmOperand(2), Immediate(0)))


@pytest.mark.parametrize(
    ("text", "value", "bits"),
    [
        ("0f3F800000", 0x3F800000, 32), ("-0f3F800000", 0xBF800000, 32), ("1.5", 0x3FF8000000000000, 64),
        ("0d4000000000000000", 0x4000000000000000, 64), ("0b101", 5, 0), ("017", 15, 0), ("-3", -3, 0),
        ("4U", 4, 0), ("1e3", 0x408F400000000000, 64),
    ],
)  # fmt: skip
def test_constants(text: str, value: int, bits: int) -> None:
    assert only(f"mov.b32 %0, {text};").operands[1] == Immediate(value, bits)


def test_labels_scopes_and_declarations() -> None:
    nodes = ptx("{ .reg .pred p, q; .reg .b32 r<3>;\nL1: @p bra.uni L1; // back\n}")
    assert [type(n).__name__ for n in nodes] == [
        "Open",
        "Declaration",
        "Declaration",
        "Label",
        "Instruction",
        "Close",
    ]
    assert nodes[1] == Declaration("pred", ("p", "q"), 1)
    assert nodes[2] == Declaration("b32", ("r0", "r1", "r2"), 1)
    assert nodes[3] == Label("L1", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("add.u32 %0, %1, %2", "';' is missing"),
        ("add.u32 %0 %1;", "';' is missing after add.u32"),
        ("add .u32 %0, %1;", "a space splits"),
        ("{ add.u32 %0, %1, %2;", "'{' is not closed"),
        ("add.u32 %0, %1, %2; }", "closes nothing"),
        (".shared .b32 x;", ".shared"),
        ("ld.u32 %0, [%1;", "']' is missing"),
        ("mov.b32 %0, {%1, %2;", "'}' is missing"),
        ("add.u32 %0, %1, $$;", ""),
        ("add.u32 %0, %1, `;", "is not PTX"),
    ],
)
def test_text_that_is_not_ptx(text: str, words: str) -> None:
    if not words:
        assert only(text)
        return
    with pytest.raises(
        Refused, match=words.replace("{", r"\{").replace("[", r"\[").replace(".", r"\.")
    ):
        ptx(text)


def test_percent_signs_with_and_without_operands() -> None:
    assert ptx("mov.u32 r, %laneid;", extended=False)
    with pytest.raises(Refused):
        ptx("mov.u32 r, %%laneid;", extended=False)
    with pytest.raises(Refused):
        ptx("mov.u32 r, %0;", extended=False)
