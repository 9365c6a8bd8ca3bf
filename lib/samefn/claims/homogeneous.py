"""A-P5: a homogeneous block of degree other than 1 never absorbs a skip.  Chapter ``skip/homogeneous``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import scipy.optimize
import sympy
import torch

from ..absorption import absorb, plant
from ..activations import Activation, get, monomial, relu_power
from ..networks import MLP, GatedMLP, Residual, random_mlp
from . import Claim, Control, Evidence, require


def scaling_defects(unit: sympy.Expr, variables: tuple[sympy.Symbol, ...], degree: sympy.Expr) -> list[sympy.Expr]:
    """unit(λ·variables) − λ^degree · unit(variables), simplified for each choice of the variables' signs.

    ``variables`` must be real symbols; all zeros in the list prove that ``unit`` is positively
    homogeneous of that degree wherever no variable is 0.
    """
    scale = sympy.Symbol("lambda", positive=True)
    size = sympy.symbols(f"p:{len(variables)}", positive=True)
    defects = []
    for signs in np.ndindex(*(2,) * len(variables)):
        values = {v: (-1) ** s * p for v, s, p in zip(variables, signs, size)}
        scaled = unit.subs({v: scale * p for v, p in values.items()}, simultaneous=True)
        plain = unit.subs(values, simultaneous=True)
        defects.append(sympy.simplify(sympy.expand_power_base(scaled - scale**degree * plain)))
    return defects


def two_radii_bound(degree: float, r: float, R: float) -> float:
    """(rRᵏ − rᵏR)/(rᵏ + Rᵏ) in absolute value: no D of degree k comes closer to x at both radii.

    Raises ValueError unless 0 < r < R.
    """
    if not 0 < r < R:
        raise ValueError(f"r and R must satisfy 0 < r < R, got {r} and {R}")
    return abs(r * R**degree - r**degree * R) / (r**degree + R**degree)


def best_on_ray(degree: float) -> tuple[float, float]:
    """(c, max |λ − cλᵏ| over 0 ≤ λ ≤ 1) for the best c, where k = ``degree`` > 0.

    At the best c the largest errors inside the interval and at its end balance.  Raises
    ValueError unless the degree is positive.
    """
    if not degree > 0:
        raise ValueError(f"degree must be positive, got {degree}")
    if degree == 1:
        return 1.0, 0.0

    def imbalance(c: float) -> float:
        inner = (c * degree) ** (1 / (1 - degree))  # where λ − cλᵏ is stationary
        return abs(inner * (1 - 1 / degree)) - abs(c - 1)

    bracket = (1.0, 2.0) if degree > 1 else (1e-300, 1.0)
    c = scipy.optimize.brentq(imbalance, *bracket, xtol=1e-15)
    return c, abs(c - 1)


def disc_fit(
    activation: str | Activation, m: int, turn: float = 0.0, radii: int = 24, directions: int = 360
) -> tuple[float, float]:
    """Least-squares fit of x on the unit disc by a block whose m rows form a regular polygon.

    Returns (relative root-mean-square error, the least such error over *all* functions of the
    activation's degree on the same grid).  ``turn`` rotates the polygon, in radians.  The grid is a
    product of directions and Gauss–Legendre radii, so that the bound for rays holds on it exactly.
    """
    activation = get(activation)
    nodes, weights = np.polynomial.legendre.leggauss(radii)
    r, weight = torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights * (nodes + 1))
    angle = torch.arange(directions, dtype=torch.float64) * (2 * torch.pi / directions)
    x = (r[:, None, None] * torch.stack([angle.cos(), angle.sin()], 1)).reshape(-1, 2)
    root = weight.sqrt().repeat_interleave(len(angle))[:, None]
    rows = turn + torch.arange(m, dtype=torch.float64) * (2 * torch.pi / m)
    hidden = activation(x @ torch.stack([rows.cos(), rows.sin()]))
    # the units may be dependent, so: least squares by singular values
    fit = hidden @ torch.linalg.lstsq(root * hidden, root * x, driver="gelsd").solution
    error = (root * (fit - x)).norm() / (root * x).norm()
    k = activation.degree
    cosine = (weight * r ** (k + 1)).sum() / ((weight * r**2).sum() * (weight * r ** (2 * k)).sum()).sqrt()
    return float(error), float((1 - cosine**2).clamp(min=0).sqrt())


def identity_with_biases(d: int) -> MLP:
    """x as a ReLU² block with biases, from (z+1)² − (z−1)² = 4z and σ(z) + σ(−z) = z²: 4d units."""
    eye, one = torch.eye(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)
    up = torch.cat([eye, -eye, eye, -eye])
    down = torch.cat([eye, eye, -eye, -eye], 1) / 4
    return MLP(up, down, "relu_squared", torch.cat([one, -one, -one, one]))


def biased_pair(basis: torch.Tensor) -> tuple[Residual, MLP]:
    """A ReLU² block with biases of width 2d, and a residual-free one of the same width that equals x + block(x).

    ``basis`` has shape (d, d) and is invertible, its rows v_k; the units are σ(v_k·x ± 1).
    """
    d = len(basis)
    dual = torch.linalg.inv(basis)  # its columns b_k satisfy Σ b_k v_kᵀ = I
    up, down = torch.cat([basis, basis]), torch.cat([-dual, dual], 1) / 4
    bias = torch.cat([torch.ones(d), -torch.ones(d)]).to(basis.dtype)
    return Residual(MLP(up, down, "relu_squared", bias)), MLP(-up, -down, "relu_squared", -bias)


@cache
def _powers() -> dict[float, Activation]:
    """ReLU to several powers, built once because SymPy makes them exact."""
    return {k: relu_power(k) for k in (0.5, 1.5, 2.0, 3.0)}


@cache
def _symbolic() -> str:
    z, y = sympy.symbols("z y", real=True)
    relu = get("relu").expression
    units = {
        "ReLU²": (get("relu_squared").expression(z), (z,), 2),
        "ReLU^1.5": (relu_power(1.5).expression(z), (z,), sympy.Rational(3, 2)),
        "√ReLU": (relu_power(0.5).expression(z), (z,), sympy.Rational(1, 2)),
        "z³": (monomial(3).expression(z), (z,), 3),
        "ReGLU": (relu(z) * y, (z, y), 2),
        "bilinear": (z * y, (z, y), 2),
    }
    for name, (unit, variables, degree) in units.items():
        defects = scaling_defects(unit, variables, degree)
        require(not any(defects), f"{name} is not homogeneous of degree {degree}: {defects}")
    return ", ".join(f"{name}: {degree}" for name, (_, _, degree) in units.items())


@cache
def _symbolic_distance() -> str:
    r, R, k, v, w = sympy.symbols("r R k v w", positive=True)
    miss = lambda t: t * v - t**k * w  # noqa: E731
    combined = R**k * miss(r) - r**k * miss(R)
    require(sympy.expand(combined - (r * R**k - r**k * R) * v) == 0, "the combination does not cancel w")
    bound = (r * R**2 - r**2 * R) / (r**2 + R**2)
    best = sympy.sqrt(2) - 1
    require(sympy.simplify(sympy.diff(bound, r).subs({r: best, R: 1})) == 0, "r = √2 − 1 is not stationary for k = 2")
    value = sympy.simplify(bound.subs({r: best, R: 1}))
    require(sympy.simplify(value - best / 2) == 0, f"the bound at r = √2 − 1 is {value}")
    for k_value, exact in ((2, (2**0.5 - 1) / 2), (0.5, 3 - 2 * 2**0.5)):
        gap = best_on_ray(k_value)[1]
        require(abs(gap - exact) < 1e-12, f"the best gap on the ray for k = {k_value} is {gap}, not {exact}")
    return "best pair r = (√2 − 1)R, error ≥ (√2 − 1)/2 · R"


def _fractions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.vectorize(lambda p: Fraction(int(p), 3))(rng.integers(-9, 10, shape))


def _exact_block(kind: str, rng: np.random.Generator, d: int, m: int):
    """x ↦ Σ a_i unit_i(x) of degree 2 in rational arithmetic."""
    gate, up, down = _fractions(rng, m, d), _fractions(rng, m, d), _fractions(rng, d, m)
    relu = lambda z: np.maximum(z, Fraction(0))  # noqa: E731
    units = {
        "ReLU²": lambda x: relu(up @ x) ** 2,
        "ReGLU": lambda x: relu(gate @ x) * (up @ x),
        "bilinear": lambda x: (gate @ x) * (up @ x),
    }[kind]
    return lambda x: down @ units(x)


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)

    yield Evidence("exact", "σ(λz) = λᵏσ(z) for λ > 0, by degree", _symbolic())

    for kind, widths in (("ReLU²", (3, 5)), ("ReGLU", (4, 4)), ("bilinear", (2, 7))):
        left, right = (_exact_block(kind, rng, 3, m) for m in widths)
        row, column = rng.integers(1, 10, 3), rng.integers(1, 10, 3)
        M = np.vectorize(Fraction)(np.outer(column, row * rng.choice([-1, 1], 3)))  # rank one: M need not be invertible
        x, r, R = M[0], Fraction(1, int(rng.integers(2, 9))), Fraction(int(rng.integers(1, 9)))
        misses = [M @ (t * x) + left(t * x) - right(t * x) for t in (r, R)]
        combined = R**2 * misses[0] - r**2 * misses[1]
        require((combined == (r * R**2 - r**2 * R) * (M @ x)).all(), f"{kind}: the two misses combine to {combined}")
        require(any(combined), f"{kind}: Mx vanishes")
    yield Evidence(
        "certificate",
        "for rational ReLU², ReGLU, bilinear blocks: two points on a ray whose misses cannot both vanish",
        "R²·miss(rx) − r²·miss(Rx) = (rR² − r²R)Mx ≠ 0, exactly",
    )
    yield Evidence("exact", "no degree-2 function is near x at two radii", _symbolic_distance())

    closest = []
    for k, power in _powers().items():
        block = random_mlp(3, 6, power, generator=generator)
        rays = torch.nn.functional.normalize(torch.randn(60, 3, generator=generator, dtype=torch.float64), dim=1)
        r, R = (0.2 + 0.3 * torch.rand(1, generator=generator)).item(), 1.5
        x = torch.cat([r * rays, R * rays])
        target = Residual(block)(x)
        rows = torch.randn(48, 3, generator=generator, dtype=torch.float64)
        down = torch.linalg.lstsq(power(x @ rows.T), target, driver="gelsd").solution.T
        miss = (target - MLP(rows, down, power)(x)).norm(dim=1).view(2, -1).amax(0)
        ratio = float((miss / two_radii_bound(k, r, R)).min())
        require(ratio > 1 - 1e-9, f"degree {k}: a fitted block beats the two-radii bound, ratio {ratio}")
        closest.append(ratio)
        found = absorb(Residual(block))
        require((found.absorbed, found.reason) == (False, "degree"), f"absorb does not refuse degree {k}: {found}")
    statement = "fitted blocks of width 48 respect the two-radii bound on every ray"
    yield Evidence("numeric", statement, f"smallest error/bound {min(closest):.3f}")

    turn, figures = float(torch.rand(1, generator=generator)), []
    for k, power in _powers().items():
        error, floor = disc_fit(power, 32, turn, radii=10, directions=50)
        exact = abs(k - 1) / (k + 3)
        require(abs(floor - exact) < 1e-4, f"degree {k}: the floor on the grid is {floor}, the formula gives {exact}")
        require(error > floor * (1 - 1e-9), f"degree {k}: the fit {error} lies below the floor {floor}")
        require(error < floor * 1.05, f"degree {k}: the fit {error} does not approach the floor {floor}")
        figures.append(f"k = {k:g}: {error:.4f} ≥ {floor:.4f}")
    yield Evidence("numeric", "least-squares error on the disc has the floor |k − 1|/(k + 3)", "; ".join(figures))


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(300, 3, generator=generator, dtype=torch.float64)

    def gap(f, g) -> float:
        return float((f(x) - g(x)).abs().max() / f(x).abs().max())

    units = tuple(sorted(torch.randperm(6, generator=generator)[:4].tolist()))
    for dropped, activation in (("k ≠ 1", "relu"), ("homogeneity", "gelu")):
        residual = plant(random_mlp(3, 6, activation, generator=generator), units)
        found = absorb(residual)
        require(found.absorbed is True, f"the planted {activation} block did not absorb: {found}")
        miss = gap(residual, found.network)
        require(miss < 1e-10, f"the {activation} block's residual-free copy differs by {miss:.1e}")
        yield Control(dropped, f"a planted {activation} block absorbs its skip", f"relative difference {miss:.1e}")

    basis = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    residual, turned = biased_pair(basis)
    require(turned.width == residual.block.width, "the biased pair has two widths")
    miss = gap(residual, turned)
    require(miss < 1e-12, f"ReLU² with biases does not absorb: {miss:.1e}")
    require((absorb(residual).absorbed, absorb(residual).reason) == (None, "biases"), "absorb does not name the biases")
    yield Control("no biases", "a ReLU² block with biases absorbs its skip at width 2d", f"relative difference {miss:.1e}")

    block = identity_with_biases(3)
    miss = gap(lambda y: y, block)
    require(block.width == 12 and miss < 1e-12, f"4d biased ReLU² units miss x by {miss:.1e}")
    yield Control("no biases, 4d units to spare", "then any ReLU² block absorbs: they make x", f"relative difference {miss:.1e}")

    line = MLP(torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([[1.0, -1.0]]).double(), "relu_squared")
    sphere, radius = torch.tensor([[1.0], [-1.0]]).double(), 1.5 + float(torch.rand(1, generator=generator))
    require(torch.equal(line(sphere), sphere), "x|x| is not x at radius 1")
    away = float((line(radius * sphere) - radius * sphere).abs().max())
    require(abs(away - (radius**2 - radius)) < 1e-12, f"at radius {radius} the miss is {away}")
    yield Control("all x", "on the line, x|x| equals x at radius 1", f"there exactly; at radius {radius:.2f} off by {away:.2f}")

    gated = GatedMLP(*(torch.randn(3, 3, generator=generator, dtype=torch.float64) for _ in range(3)), "relu")
    nothing = Residual(gated, torch.zeros(3, 3, dtype=torch.float64))
    require(torch.equal(nothing(x), gated(x)) and absorb(nothing).absorbed is True, "a zero skip was not absorbed")
    yield Control("M ≠ 0", "the zero skip is absorbed by the block itself", "difference 0")


CLAIM = Claim(
    id="A-P5",
    title="A homogeneous block of degree k ≠ 1 never absorbs a skip",
    source="[A], Proposition 5; the distances are ours",
    hypotheses=("every unit positively homogeneous of one degree k ≠ 1", "no biases", "M ≠ 0", "any widths"),
    uses=(),
    chapter="skip/homogeneous",
    evidence=evidence,
    controls=controls,
)
