"""The elements that an access is told in, by how a program declares the variable."""

import pytest

from kernel_assay.kernels.backends.simt.program.elements import element_bytes

TYPES = "struct Foo { int a; };\ntypedef double real;\nusing namespace std;\ntemplate <typename T> T f();\n"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("odd", "int *d, *r, *odd, n = 3;", 4),
        ("x", "void f(int n, const float* __restrict__ x)", 4),
        ("x", "void f(int n, Foo* x)", 0),
        ("x", "template <typename T> void f(T* x)", 0),
        ("q", "unsigned long long *p = nullptr, *q;", 8),
        ("v", "float3 const* v;", 12),
        ("h", "half2* h; // float* h;", 4),
        ("r", "real *r;", 0),
        ("s", "short *q, *s{};", 2),
        ("p[0]", "float* p[2];", 4),
        ("pp", "int **pp;", 8),
        ("b[i].x", "struct B { short *y, *x; };", 2),
        ("x", "y = 2 * x; g((float*)x); return x;", 0),
        ("x", "int *x; Foo* x;", 0),
        ("x", "Foo* x; char* x;", 1),
    ],
)
def test_elements_of_what_a_pointer_points_to(name, text, wanted):
    assert element_bytes(name, text, TYPES + text, is_array=False) == wanted


@pytest.mark.parametrize(("text", "wanted"), [("int a, x[4] = {1};", 4), ("float* x[2];", 8), ("Foo x[2];", 0)])
def test_elements_of_a_variable(text, wanted):
    assert element_bytes("x", "", TYPES + text, is_array=True) == wanted


def test_declarations_elsewhere_must_agree():
    said = [element_bytes("x", "", text, is_array=False) for text in ("int* x; float* x;", "int* x; char* x;")]
    assert said == [4, 0]
