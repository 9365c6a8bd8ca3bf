"""A-P5: a homogeneous block of degree other than 1 never absorbs a skip.  Chapter ``skip/homogeneous``."""

from __future__ import annotations

import numpy as np
import sympy
import torch
from torch import Tensor

from ...activations import get, monomial, relu_power
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
    hypotheses=(
        "every unit is positively homogeneous, of one degree k",
        "k ≠ 1",
        "no biases inside the units",
        "M ≠ 0",
    ),
    uses=(),
    chapter="skip/homogeneous",
)

POWERS = 0.5, 1.5, 2.0, 3.0


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


def _whole(draw: Draw, *shape: int) -> Tensor:
    return draw.integers(-9, 10, *shape).double()


def _degree_two(kind: str, m: int, draw: Draw) -> MLP | GatedMLP:
    """A block on R³ of m units with whole-number weights: exact at whole numbers, in float64."""
    up, gate, down = _whole(draw, m, 3), _whole(draw, m, 3), _whole(draw, 3, m)
    if kind == "ReLU²":
        return MLP(up, down, "relu_squared")
    return GatedMLP(gate, up, down, {"ReGLU": "relu", "bilinear": "identity"}[kind])


@claim.certificate(
    "for ReLU², ReGLU and bilinear blocks: two points of a ray whose misses cannot both vanish"
)
def two_points_on_a_ray(draw: Draw) -> str:
    r, R = draw.integer(1, 4), draw.integer(4, 9)
    for kind, widths in (("ReLU²", (3, 5)), ("ReGLU", (4, 4)), ("bilinear", (2, 7))):
        block, other = (_degree_two(kind, m, draw) for m in widths)
        row = 1 + draw.integers(0, 9, 3).double()
        M = torch.outer(_whole(draw, 3).abs() + 1, row)  # of rank one: M need not be invertible
        x = torch.stack([r * row, R * row])
        miss = Residual(block, M)(x) - other(x)
        combined = R**2 * miss[0] - r**2 * miss[1]
        same = torch.equal(combined, (r * R**2 - r**2 * R) * (M @ row))
        require(same, f"{kind}: the two misses combine to {combined}")
        require(combined.any(), f"{kind}: the combination says nothing")
    return f"{R}²·miss({r}x) − {r}²·miss({R}x) = {r * R**2 - r**2 * R}·Mx ≠ 0, exactly"


@claim.exact(
    "of all pairs of ReLU² or z³ blocks on the line, width 2, weights −3, …, 3, none solves Mx + B = B'"
)
def all_small_blocks() -> str:
    x = torch.tensor([[1.0], [-1.0], [2.0], [-2.0]])
    weights = torch.cartesian_prod(*(torch.arange(-3.0, 4.0),) * 4)
    solved = {}
    for name in ("relu", "relu_squared", monomial(3)):
        hidden = get(name)(x[:, None] * weights[:, :2])
        values = (hidden * weights[:, 2:]).sum(-1).T  # of each block at the four points
        blocks = {tuple(v) for v in values.tolist()}
        solved[get(name).name] = sum(
            len({tuple(v) for v in (values + M * x.T).tolist()} & blocks) for M in (1, -2, 5)
        )
    with_degree_one = solved.pop("relu")
    require(with_degree_one > 0, "the search finds nothing where there is something: no ReLU block absorbs")
    require(not any(solved.values()), f"blocks that absorb a skip: {solved}")
    return f"{len(weights)}² pairs each for ReLU² and z³; for ReLU {with_degree_one} functions are found"


@claim.numeric("two radii r < R: the bound, the best pair for k = 2, and the best on a ray for k = 2 and ½")
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


@claim.numeric("no fitted block of width 48 beats the two-radii bound on 60 rays, and a function attains it")
def fits_respect_the_bound(draw: Draw) -> str:
    closest = []
    for k in POWERS:
        power = relu_power(k)
        residual = Residual(random_mlp(3, 6, power, generator=draw))
        rays = torch.nn.functional.normalize(draw.normal(60, 3), dim=1)
        r, R = 0.2 + 0.3 * float(draw.uniform()), 1.5
        x, rows, bound = torch.cat([r * rays, R * rays]), draw.normal(48, 3), two_radii_bound(k, r, R)
        down = torch.linalg.lstsq(power(x @ rows.T), residual(x), driver="gelsd").solution.T
        miss = (residual(x) - MLP(rows, down, power)(x)).norm(dim=1).view(2, -1).amax(0)
        closest.append(float((miss / bound).min()))
        require(closest[-1] > 1 - 1e-9, f"degree {k}: a fitted block beats the bound, {closest[-1]}")
        multiple = (r + R) / (r**k + R**k)
        attained = (x - multiple * x.norm(dim=1, keepdim=True) ** (k - 1) * x).norm(dim=1)
        require(torch.allclose(attained, torch.tensor(bound)), f"degree {k}: {bound} is not attained")
    return f"smallest error/bound {min(closest):.3f}"


@claim.numeric("least-squares error on the disc has the floor |k − 1|/(k + 3)")
def floor_on_the_disc(draw: Draw) -> str:
    turn, figures = float(draw.uniform()), []
    for k in POWERS:
        error, floor = disc_fit(relu_power(k), 32, turn, radii=10, directions=50)
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


@claim.control(
    "every unit is positively homogeneous, of one degree k", "a planted gelu block absorbs its skip"
)
def no_degree(draw: Draw) -> str:
    return _planted("gelu", draw)


@claim.control(
    "every unit is positively homogeneous, of one degree k",
    "units of degrees 1 and 2 absorb: B = −ReLU + ReLU²",
)
def two_degrees(draw: Draw) -> str:
    x = draw.integers(-99, 100, 20, 3).double()
    linear, square = (
        MLP(torch.eye(3), -torch.eye(3)),
        MLP(_whole(draw, 5, 3), _whole(draw, 3, 5), "relu_squared"),
    )
    free = MLP(-torch.eye(3), -torch.eye(3))
    require(torch.equal(x + linear(x) + square(x), free(x) + square(x)), "−ReLU did not take up the skip")
    return "difference 0"


@claim.control("no biases inside the units", "a ReLU² block with biases absorbs its skip at width 2d")
def biases(draw: Draw) -> str:
    residual, turned = biased_pair(torch.linalg.qr(draw.normal(3, 3)).Q)
    require(turned.width == residual.block.width == 6, "the biased pair has two widths")
    miss = gap(residual, turned, draw.normal(300, 3))
    require(miss < 1e-12, f"ReLU² with biases does not absorb: {miss:.1e}")
    require(absorb(residual).absorbed is not False, "absorb says that it does not absorb")
    return f"relative difference {miss:.1e}"


@claim.control("no biases inside the units", "4d biased ReLU² units make x, and so absorb any skip")
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
    require(torch.equal(nothing(x), gated(x)), "a zero skip was not absorbed")
    return "difference 0"
