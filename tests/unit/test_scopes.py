"""Namespaces of a kernel text, read without a compiler."""

from __future__ import annotations

import pytest

from tilegen.emulator import scopes

TEXT = """
// namespace told { __global__ void commented(int) {} }
const char *const said = "namespace { {";
__global__ void outside(float *x) { if (x) { x[0] = '}'; } }
namespace one {
struct pair { int a, b; };
extern __shared__ float tiles[];
extern "C" __global__ void __launch_bounds__(pair_of(1, 2), 2) wide(const int n) {}
template <int WIDTH> __global__ __launch_bounds__(128) void tiled(int *x) {}
namespace two { __global__ void __cluster_dims__(2, 1, 1) deep(int n) {} }
__global__ void twice(int n) {}
}  // namespace one
namespace three::four {
__global__ void twice(int n) {}
}
namespace { __global__ void hidden(int n) {} }
extern "C" { __global__ void in_c(int n) {} }
"""


def test_kernels_are_found_in_their_namespaces() -> None:
    assert scopes.kernels(TEXT) == {
        "outside": [""],
        "wide": ["one"],
        "tiled": ["one"],
        "deep": ["one::two"],
        "twice": ["one", "three::four"],
        "hidden": [""],
        "in_c": [""],
    }


@pytest.mark.parametrize(
    ("entry", "called"),
    [
        ("wide", "one::wide"),
        ("tiled<8>", "one::tiled<8>"),
        ("deep", "one::two::deep"),
        ("one::wide", "one::wide"),
        ("outside", "outside"),
        ("twice", "twice"),
        ("absent", "absent"),
    ],
)
def test_an_entry_is_called_by_its_namespace(entry: str, called: str) -> None:
    assert scopes.qualified(TEXT, entry) == called


def test_a_text_keeps_its_places() -> None:
    shown = scopes.bare(TEXT)
    assert len(shown) == len(TEXT)
    assert shown.index("wide") == TEXT.index("wide")
    assert "told" not in shown


def test_the_linker_names_variables_by_their_namespaces() -> None:
    assert scopes.linked("", "tiles") == "tiles"
    assert scopes.linked("one::two", "tiles") == "_ZN3one3two5tilesE"
