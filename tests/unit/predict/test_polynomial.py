import numpy as np
import pytest

from inferometer.predict.work.polynomial import (
    NotPolynomialError,
    Polynomial,
    coefficients,
    monomials_of,
    spread_monomials,
)

N, M = Polynomial.symbol("n"), Polynomial.symbol("m")


def value(polynomial, **sizes):
    monomials = monomials_of([polynomial])
    return float((coefficients([polynomial], monomials) @ spread_monomials(monomials, sizes, ()))[0, 0])


def test_arithmetic_is_that_of_numbers():
    polynomial = 3 * (N + 2) * M - N * N - (1 - M)
    assert value(polynomial, n=5, m=7) == 3 * 7 * 7 - 25 - (1 - 7)


def test_a_division_that_comes_out_even_stays_a_polynomial():
    assert value(N * (N + 1) // 2, n=7, m=0) == 28
    assert value((6 * N * M) // (3 * M), n=5, m=2) == 10
    assert value(-(-(32 * N) // 32) * 18, n=3) == 54


@pytest.mark.parametrize(
    "asked",
    [
        lambda: N // 2,
        lambda: (N * N + M) // 3,
        lambda: (N + 1) // M,
        lambda: N // (N + 1),
        lambda: N % 2,
        lambda: N < 3,
        lambda: N >= 3,
        lambda: bool(N),
        lambda: N + "x",
    ],
)
def test_what_no_polynomial_can_say_is_refused(asked):
    with pytest.raises(NotPolynomialError):
        asked()


def test_numpys_functions_refuse_it():
    with pytest.raises(TypeError):
        np.minimum(N, 3)


def test_zero_has_no_terms():
    assert not (N - N).terms
    assert not bool(N - N)
    assert repr(2 * N + 1) == "2·n + 1"


def test_many_workloads_are_columns():
    monomials = monomials_of([N * M + 4])
    sizes = {"n": np.array([[1], [2]]), "m": np.array([[10, 20, 30]])}
    found = coefficients([N * M + 4], monomials) @ spread_monomials(monomials, sizes, (2, 3))
    assert found.tolist() == [[14, 24, 34, 24, 44, 64]]
