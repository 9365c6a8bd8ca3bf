"""A-P5: a homogeneous block of degree other than 1 never absorbs a skip.  Chapter ``skip/homogeneous``."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import sympy
import torch

from ...activations import Activation, get, monomial, relu_power
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, GatedMLP, Residual, random_mlp
from ...skip.absorption import absorb
from ...skip.homogeneous import best_on_ray, biased_pair, disc_fit, identity_with_biases, two_radii_bound
from ...skip.planted import plant
from .. import Claim, require

claim = Claim(
    id="A-P5",
    title="A homogeneous block of degree k ≠ 1 never absorbs a skip",
    source="[A], Proposition 5; the distances are ours",
    hypotheses=("every unit positively homogeneous of one degree k ≠ 1", "no biases", "M ≠ 0", "any widths"),
    uses=(),
    chapter="skip/homogeneous",
)


def _scaling_defects(
    unit: sympy.Expr, variables: tuple[sympy.Symbol, ...], degree: sympy.Expr | int
) -> list[sympy.Expr]:
    """unit(λ·variables) − λ^degree · unit(variables), simplified for each choice of the variables' signs.

    All zeros prove that ``unit`` is positively homogeneous of that degree wherever no variable is 0.
    """
    scale = sympy.Symbol("lambda", positive=True)
    size = sympy.symbols(f"p:{len(variables)}", positive=True)
    defects = []
    for signs in np.ndindex(*(2,) * len(variables)):
        values = {v: (-1) ** s * p for v, s, p in zip(variables, signs, size, strict=True)}
        scaled = unit.subs({v: scale * p for v, p in values.items()}, simultaneous=True)
        plain = unit.subs(values, simultaneous=True)
        defects.append(sympy.simplify(sympy.expand_power_base(scaled - scale**degree * plain)))
    return defects


@claim.exact("σ(λz) = λᵏσ(z) for λ > 0, by degree")
def degrees() -> str:
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
        defects = _scaling_defects(unit, variables, degree)
        require(not any(defects), f"{name} is not homogeneous of degree {degree}: {defects}")
    return ", ".join(f"{name}: {degree}" for name, (_, _, degree) in units.items())


def _fractions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.vectorize(lambda p: Fraction(int(p), 3))(rng.integers(-9, 10, shape))


def _exact_block(kind: str, m: int, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """x ↦ Σ a_i unit_i(x) of degree 2 on R³, m units, in rational arithmetic."""
    gate, up, down = _fractions(rng, m, 3), _fractions(rng, m, 3), _fractions(rng, 3, m)
    relu = lambda z: np.maximum(z, Fraction(0))
    units = {
        "ReLU²": lambda x: relu(up @ x) ** 2,
        "ReGLU": lambda x: relu(gate @ x) * (up @ x),
        "bilinear": lambda x: (gate @ x) * (up @ x),
    }[kind]
    return lambda x: down @ units(x)


@claim.certificate(
    "for rational ReLU², ReGLU, bilinear blocks: two points on a ray whose misses cannot both vanish"
)
def two_points_on_a_ray(draw: Draw) -> str:
    rng = draw.rng()
    for kind, widths in (("ReLU²", (3, 5)), ("ReGLU", (4, 4)), ("bilinear", (2, 7))):
        left, right = (_exact_block(kind, m, rng) for m in widths)
        row, column = rng.integers(1, 10, 3) * rng.choice([-1, 1], 3), rng.integers(1, 10, 3)
        M = np.vectorize(Fraction)(np.outer(column, row))  # rank one: M need not be invertible
        x, r, R = M[0], Fraction(1, int(rng.integers(2, 9))), Fraction(int(rng.integers(1, 9)))
        misses = [M @ (t * x) + left(t * x) - right(t * x) for t in (r, R)]
        combined = R**2 * misses[0] - r**2 * misses[1]
        same = (combined == (r * R**2 - r**2 * R) * (M @ x)).all()
        require(same, f"{kind}: the two misses combine to {combined}")
        require(any(combined), f"{kind}: Mx vanishes")
    return "R²·miss(rx) − r²·miss(Rx) = (rR² − r²R)Mx ≠ 0, exactly"


@claim.exact("no degree-2 function is near x at two radii")
def best_pair_of_radii() -> str:
    r, R, k, v, w = sympy.symbols("r R k v w", positive=True)
    miss = lambda t: t * v - t**k * w
    combined = R**k * miss(r) - r**k * miss(R)
    require(sympy.expand(combined - (r * R**k - r**k * R) * v) == 0, "the combination does not cancel w")
    bound, best = (r * R**2 - r**2 * R) / (r**2 + R**2), sympy.sqrt(2) - 1
    at_best = {r: best, R: 1}
    stationary = sympy.simplify(sympy.diff(bound, r).subs(at_best)) == 0
    require(stationary, "r = √2 − 1 is not stationary for k = 2")
    value = sympy.simplify(bound.subs(at_best))
    require(sympy.simplify(value - best / 2) == 0, f"the bound at r = √2 − 1 is {value}")
    for degree, exact in ((2, (2**0.5 - 1) / 2), (0.5, 3 - 2 * 2**0.5)):
        least = best_on_ray(degree)[1]
        require(abs(least - exact) < 1e-12, f"the best on the ray for k = {degree} is {least}, not {exact}")
    return "best pair r = (√2 − 1)R, error ≥ (√2 − 1)/2 · R"


@cache
def _powers() -> dict[float, Activation]:
    """ReLU to several powers, built once because SymPy makes them exact."""
    return {k: relu_power(k) for k in (0.5, 1.5, 2.0, 3.0)}


@claim.numeric("fitted blocks of width 48 respect the two-radii bound on 60 rays")
def fits_respect_the_bound(draw: Draw) -> str:
    closest = []
    for k, power in _powers().items():
        residual = Residual(random_mlp(3, 6, power, generator=draw))
        rays = torch.nn.functional.normalize(draw.normal(60, 3), dim=1)
        r, R = 0.2 + 0.3 * float(draw.uniform()), 1.5
        x, rows = torch.cat([r * rays, R * rays]), draw.normal(48, 3)
        down = torch.linalg.lstsq(power(x @ rows.T), residual(x), driver="gelsd").solution.T
        miss = (residual(x) - MLP(rows, down, power)(x)).norm(dim=1).view(2, -1).amax(0)
        closest.append(float((miss / two_radii_bound(k, r, R)).min()))
        require(closest[-1] > 1 - 1e-9, f"degree {k}: a fitted block beats the bound, {closest[-1]}")
        found = absorb(residual)
        refused = (found.absorbed, found.reason) == (False, "degree")
        require(refused, f"absorb does not refuse degree {k}: {found}")
    return f"smallest error/bound {min(closest):.3f}"


@claim.numeric("least-squares error on the disc has the floor |k − 1|/(k + 3)")
def floor_on_the_disc(draw: Draw) -> str:
    turn, figures = float(draw.uniform()), []
    for k, power in _powers().items():
        error, floor = disc_fit(power, 32, turn, radii=10, directions=50)
        exact = abs(k - 1) / (k + 3)
        require(abs(floor - exact) < 1e-4, f"degree {k}: the floor on the grid is {floor}, not {exact}")
        require(error > floor * (1 - 1e-9), f"degree {k}: the fit {error} lies below the floor {floor}")
        require(error < floor * 1.05, f"degree {k}: the fit {error} does not approach the floor {floor}")
        figures.append(f"k = {k:g}: {error:.4f} ≥ {floor:.4f}")
    return "; ".join(figures)


def _planted(activation: str, draw: Draw) -> str:
    residual = plant(random_mlp(3, 6, activation, generator=draw), draw.subset(6, 4))
    found = absorb(residual)
    require(found.absorbed is True, f"the planted {activation} block did not absorb: {found}")
    miss = gap(residual, found.network, draw.normal(300, 3))
    require(miss < 1e-10, f"the {activation} block's residual-free copy differs by {miss:.1e}")
    return f"relative difference {miss:.1e}"


@claim.control("k ≠ 1", "a planted relu block absorbs its skip")
def degree_one(draw: Draw) -> str:
    return _planted("relu", draw)


@claim.control("homogeneity", "a planted gelu block absorbs its skip")
def no_degree(draw: Draw) -> str:
    return _planted("gelu", draw)


@claim.control("no biases", "a ReLU² block with biases absorbs its skip at width 2d")
def biases(draw: Draw) -> str:
    residual, turned = biased_pair(torch.linalg.qr(draw.normal(3, 3)).Q)
    require(turned.width == residual.block.width, "the biased pair has two widths")
    miss = gap(residual, turned, draw.normal(300, 3))
    require(miss < 1e-12, f"ReLU² with biases does not absorb: {miss:.1e}")
    found = absorb(residual)
    require((found.absorbed, found.reason) == (None, "biases"), f"absorb does not name the biases: {found}")
    return f"relative difference {miss:.1e}"


@claim.control("no biases, 4d units to spare", "then any ReLU² block absorbs: they make x")
def biases_make_the_identity(draw: Draw) -> str:
    block = identity_with_biases(3)
    miss = gap(lambda x: x, block, draw.normal(300, 3))
    require(block.width == 12 and miss < 1e-12, f"4d biased ReLU² units miss x by {miss:.1e}")
    return f"relative difference {miss:.1e}"


@claim.control("all x", "on the line, x|x| equals x at radius 1")
def one_radius(draw: Draw) -> str:
    sphere, radius = torch.tensor([[1.0], [-1.0]]), 1.5 + float(draw.uniform())
    line = MLP(sphere.clone(), sphere.T.clone(), "relu_squared")
    require(torch.equal(line(sphere), sphere), "x|x| is not x at radius 1")
    away = float((line(radius * sphere) - radius * sphere).abs().max())
    require(abs(away - (radius**2 - radius)) < 1e-12, f"at radius {radius} the miss is {away}")
    return f"there exactly; at radius {radius:.2f} off by {away:.2f}"


@claim.control("M ≠ 0", "the zero skip is absorbed by the block itself")
def zero_skip(draw: Draw) -> str:
    gated, x = GatedMLP(*draw.normal(3, 3, 3), "relu"), draw.normal(300, 3)
    nothing = Residual(gated, torch.zeros(3, 3))
    absorbed = torch.equal(nothing(x), gated(x)) and absorb(nothing).absorbed is True
    require(absorbed, "a zero skip was not absorbed")
    return "difference 0"
