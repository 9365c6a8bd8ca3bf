"""Does training find the symmetry?  The experiment of [B] with a soft mirror loss, and what it measures.

A network with three hidden layers is trained to reproduce images (autoencoder) or to classify
them; from some step on it is also asked to commute with the left-right mirror.  Only the first
activation varies.  Images are rows of length channels · height · width.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from .datasets import Images, digits, natural_patches
from .equivariance import transport
from .networks import DeepMLP
from .symmetry import Symmetry, align, nearest_signed_permutation
from .training import Record, train

TASKS = ("autoencoder", "classifier")
AXES = {"left-right": -1, "up-down": -2}
MEASURE_AT = (0, 900, 1800, 1900, 2000, 2200, 2500, 3000, 3500, 4000, 4500, 5000, 5500)  # steps; the last is measured anyway
FIT_SAMPLES = 20_000  # for a least-squares fit of some dozens of coefficients for each unit


def mirrored(x: Float[Tensor, "n d"], shape: tuple[int, int, int], axis: str = "left-right") -> Float[Tensor, "n d"]:
    """The mirror images of flattened images of ``shape`` (channels, height, width).

    Raises ValueError for another axis than "left-right" and "up-down", or rows of another length.
    """
    if axis not in AXES:
        raise ValueError(f"axis must be one of {', '.join(AXES)}, got {axis!r}")
    if len(shape) != 3:
        raise ValueError(f"shape must be (channels, height, width), got {shape}")
    if x.shape[-1] != torch.Size(shape).numel():
        raise ValueError(f"x must have rows of length {torch.Size(shape).numel()} for images of shape {shape}, got {x.shape[-1]}")
    return x.unflatten(-1, shape).flip(AXES[axis]).flatten(-3)


def bundled(task: str) -> Images:
    """The book's images for a task: 20,000 grey patches of 12 × 12 pixels ("autoencoder"), or the digits ("classifier")."""
    if task not in TASKS:
        raise ValueError(f"task must be 'autoencoder' or 'classifier', got {task!r}")
    if task == "classifier":
        return digits()
    return natural_patches(20_000, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Setting:
    """One run.  ``task`` is "autoencoder" or "classifier", ``activation`` that of the first layer (the others are GELU).

    The mirror loss is ``mirror_weight`` times the mean squared violation over ``batch`` images and ``noise``
    samples of white noise of standard deviation ``noise_scale``, from the fraction ``mirror_from`` of the ``steps`` on.
    """

    task: str = "autoencoder"
    activation: str = "tanh"
    seed: int = 0
    width: int = 32
    steps: int = 6000
    batch: int = 64
    noise: int = 256
    noise_scale: float = 1.0
    mirror_weight: float = 10.0
    mirror_from: float = 0.3
    learning_rate: float = 3e-3
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"task must be 'autoencoder' or 'classifier', got {self.task!r}")
        for name in ("width", "steps", "batch", "noise"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.mirror_from <= 1:
            raise ValueError(f"mirror_from must lie in [0, 1], got {self.mirror_from}")


def untrained(images: Images, setting: Setting) -> DeepMLP:
    """The network before training: weights and biases uniform in ±1/√(inputs), float64, drawn from the seed.

    Raises ValueError for a classifier of images without labels.
    """
    d = images.pixels[0].numel()
    if setting.task == "classifier" and images.labels is None:
        raise ValueError(f"images must have labels for a classifier, {images.name} have none")
    out = d if setting.task == "autoencoder" else int(images.labels.max()) + 1
    sizes = [d, *[setting.width] * 3, out]
    generator = torch.Generator().manual_seed(setting.seed)

    def uniform(*shape: int, inputs: int) -> Tensor:
        draw = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return ((2 * draw - 1) / inputs**0.5).requires_grad_()

    weights = [uniform(m, n, inputs=n) for n, m in zip(sizes, sizes[1:])]
    biases = [uniform(m, inputs=n) for n, m in zip(sizes, sizes[1:])]
    return DeepMLP(weights, biases, [setting.activation, "gelu", "gelu"])


def mirror_loss(images: Images, setting: Setting) -> Callable[[DeepMLP, int, torch.Generator], Tensor]:
    """The loss of a run, for :func:`samefn.training.train`: the task's, and the mirror's after its start."""
    x, shape, labels = images.vectors(), images.shape, images.labels

    def move_output(y: Tensor) -> Tensor:
        return mirrored(y, shape) if setting.task == "autoencoder" else y

    def loss(network: DeepMLP, step: int, generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(x), (setting.batch,), generator=generator)
        ask = step >= setting.mirror_from * setting.steps
        batch = x[chosen]
        if ask:
            # drawn in float32, which is several times faster; the arithmetic stays in float64
            noise = torch.randn(setting.noise, x.shape[1], generator=generator, dtype=torch.float32)
            batch = torch.cat([batch, setting.noise_scale * noise.to(x.dtype)])
            y, moved = network(torch.cat([batch, mirrored(batch, shape)])).split(len(batch))
        else:
            y = network(batch)
        if setting.task == "autoencoder":
            task = (y[: setting.batch] - x[chosen]).square().mean()
        else:
            task = torch.nn.functional.cross_entropy(y[: setting.batch], labels[chosen])
        if not ask:
            return task
        return task + setting.mirror_weight * (moved - move_output(y)).square().mean()

    return loss


@dataclass(frozen=True)
class Layerwise:
    """How equivariant each layer is: for layer i the least-squares ``actions[i]`` = A_i and the ``errors[i]``; ``end_to_end``.

    An error is the median over samples y of ‖f_i(mirror y) − A_i f_i(y)‖ / ‖f_i(y)‖, where f_i is the
    network up to layer i; end to end, A is the given action on outputs.
    """

    actions: tuple[Float[Tensor, "n n"], ...]
    errors: tuple[float, ...]
    end_to_end: float


def hidden_values(network: DeepMLP, x: Float[Tensor, "n d"]) -> list[Float[Tensor, "n width"]]:
    """The values of each hidden layer, and of the output last, without gradients."""
    values = []
    with torch.no_grad():
        for i in range(1, len(network.weights) + 1):
            x = network.layer(i, x)
            values.append(x)
    return values


def least_squares_action(values: Float[Tensor, "samples n"], moved: Float[Tensor, "samples n"]) -> Float[Tensor, "n n"]:
    """The matrix A with A · values ≈ moved, row by row, that minimises the sum of squares.

    Where the values do not span R^n it is one of many, from a pivoted QR decomposition; units that are always zero do no harm.
    """
    return torch.linalg.lstsq(values, moved, driver="gelsy").solution.T


def layerwise(
    network: DeepMLP,
    shape: tuple[int, int, int],
    axis: str = "left-right",
    *,
    samples: int = 100_000,
    scale: float = 1.0,
    seed: int = 0,
) -> Layerwise:
    """Measure a network on white noise of standard deviation ``scale``.

    The A_i are fitted on 20,000 draws, the errors taken on ``samples`` others.

    Outputs of the length of the inputs are images and are mirrored, others are invariant.  Source: [B], experiments; there
    the errors are medians over 100,000 noise samples.  Raises ValueError where ``shape`` does not fit.
    """
    generator = torch.Generator().manual_seed(seed)
    fit, test = (
        scale * torch.randn(n, network.dim_in, generator=generator, dtype=torch.float32).to(torch.float64)
        for n in (FIT_SAMPLES, samples)
    )
    before, after = hidden_values(network, fit), hidden_values(network, mirrored(fit, shape, axis))
    actions = [least_squares_action(h, g) for h, g in zip(before[:-1], after[:-1])]
    before, after = hidden_values(network, test), hidden_values(network, mirrored(test, shape, axis))
    expected = [h @ a.T for h, a in zip(before, actions)]
    images = network.dim_out == network.dim_in
    expected.append(mirrored(before[-1], shape, axis) if images else before[-1])
    *errors, end_to_end = (float(((g - e).norm(dim=1) / h.norm(dim=1)).median()) for h, g, e in zip(before, after, expected))
    return Layerwise(tuple(actions), tuple(errors), end_to_end)


def errors(network: DeepMLP, shape: tuple[int, int, int], samples: int = 100_000, scale: float = 1.0) -> dict[str, float]:
    """:func:`layerwise` of both axes in one row: ``f1 left-right``, …, ``end up-down``."""
    found = {}
    for axis in AXES:
        result = layerwise(network, shape, axis, samples=samples, scale=scale)
        found |= {f"f{i + 1} {axis}": error for i, error in enumerate(result.errors)}
        found[f"end {axis}"] = result.end_to_end
    return found


def match(network: DeepMLP, shape: tuple[int, int, int], axis: str = "left-right") -> Symmetry:
    """The symmetry k that takes the network nearest to its mirror image θ^g = (W_1 ρ(g)⁻¹, W_2, …, ρ'(g) W_L).

    :func:`samefn.symmetry.align` with no bound on the misfit: a trained network is equivariant only nearly.
    The latent action of Theorem 4.1 is ρ_1(g) = k_1(g)⁻¹.
    """
    on_images = mirrored(torch.eye(network.dim_in, dtype=torch.float64), shape, axis).T
    on_outputs = on_images if network.dim_out == network.dim_in else torch.eye(network.dim_out, dtype=torch.float64)
    moved = transport(network, on_images, on_outputs)
    return align(network, moved, tolerance=float("inf"))


@dataclass(frozen=True)
class Units:
    """The first hidden layer matched with its mirror image, one entry for each unit.

    ``partner[j]`` is the unit that unit j is carried to, ``sign[j]`` the factor it gets (a sign for tanh, positive for ReLU); ``misfit[j]`` is
    ‖mirrored w_j − sign · w_partner‖ / ‖w_j‖, with the bias; ``outgoing[j]`` the norm of its outgoing weights;
    ``opposite[j]`` the smallest cosine of w_j with another row, -1 for a pair ±w.
    """

    partner: list[int]
    sign: list[float]
    misfit: list[float]
    outgoing: list[float]
    opposite: list[float]


def units(network: DeepMLP, shape: tuple[int, int, int], axis: str = "left-right") -> Units:
    """Which first-layer unit is the mirror image of which: :func:`match`, read off unit by unit."""
    symmetry = match(network, shape, axis)
    partner, sign = symmetry.permutations[0], symmetry.factors[0]
    rows = torch.cat([network.weights[0], network.biases[0][:, None]], 1).detach()
    moved = torch.cat([mirrored(rows[:, :-1], shape, axis), rows[:, -1:]], 1)
    misfit = (moved - sign[:, None] * rows[partner]).norm(dim=1) / rows.norm(dim=1)
    outgoing = network.weights[1].detach().norm(dim=0)
    directions = torch.nn.functional.normalize(rows, dim=1)
    opposite = (directions @ directions.T).amin(dim=1)
    return Units(*(t.tolist() for t in (partner, sign, misfit, outgoing, opposite)))


def run(
    images: Images,
    setting: Setting,
    *,
    measure_at: tuple[int, ...] = (),
    watch: Callable[[DeepMLP], None] | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> tuple[DeepMLP, Record]:
    """Train one network and return it with its record, whose rows hold :func:`errors`, on fewer samples.

    Measured after the steps in ``measure_at`` and after the last; ``watch`` is shown the network each time.
    """
    network = untrained(images, setting)

    def measure(network: DeepMLP) -> dict[str, float]:
        if watch is not None:
            watch(network)
        return errors(network, images.shape, samples=4000, scale=setting.noise_scale)

    record = train(
        network,
        mirror_loss(images, setting),
        steps=setting.steps,
        seed=setting.seed,
        learning_rate=setting.learning_rate,
        weight_decay=setting.weight_decay,
        measure=measure,
        measure_at=measure_at,
        checkpoint=checkpoint,
        about=asdict(setting) | {"images": images.name},
        description=f"{setting.task}, {setting.activation}, seed {setting.seed}",
        progress=progress,
    )
    return network, record


def outcome(network: DeepMLP, record: Record, shape: tuple[int, int, int], scale: float = 1.0) -> dict[str, object]:
    """All that the book says of a trained network, as numbers and lists for a JSON file.

    ``errors`` on 100,000 samples of noise of standard deviation ``scale``, ``distance`` = ‖A_1 − Q‖ / √width for
    the nearest signed permutation Q, the ``units`` of the first layer, and the ``rows`` of its record.
    """
    action = layerwise(network, shape, samples=1, scale=scale).actions[0]
    distance = (action - nearest_signed_permutation(action)).norm() / len(action) ** 0.5
    return {
        "errors": errors(network, shape, scale=scale),
        "distance": float(distance),
        "units": asdict(units(network, shape)),
        "rows": record.rows,
    }


def recorded(variant: str, activation: str | None = None) -> list[dict[str, object]]:
    """The runs of ``benchmarks/mirror.py`` that travel with the library: their setting and their :func:`outcome`.

    Raises ValueError naming the variants there are, or the activations that a variant was run with.
    """
    text = (resources.files("samefn") / "results" / "mirror.json").read_text("utf8")
    runs = json.loads(text)["runs"]
    variants = list(dict.fromkeys(run["variant"] for run in runs))
    if variant not in variants:
        raise ValueError(f"variant must be one of {', '.join(variants)}, got {variant!r}")
    runs = [run for run in runs if run["variant"] == variant]
    found = [run for run in runs if activation in (None, run["setting"]["activation"])]
    if not found:
        known = dict.fromkeys(run["setting"]["activation"] for run in runs)
        raise ValueError(f"activation must be one of {', '.join(known)} for {variant!r}, got {activation!r}")
    return found
