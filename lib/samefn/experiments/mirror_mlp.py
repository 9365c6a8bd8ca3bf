"""Does training find the symmetry?  The experiment of [B] with a soft mirror loss, and what it measures.

A network with three hidden layers is trained to reproduce images (autoencoder) or to classify them;
from some step on it is also asked to commute with the left-right mirror.  Only the first activation
varies.  Images are rows of length channels · height · width.  Chapter ``equivariance/mirror``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .. import activations
from ..arguments import Count, Positive, Seed
from ..equivariance.alignment import Symmetry, nearest_signed_permutation, nearest_symmetry
from ..equivariance.images import AXES, Axis, mirrored
from ..equivariance.layerwise import hidden_values, least_squares_action, transport
from ..networks import DeepMLP
from . import protocol
from .data import Images, digits, natural_patches
from .training import Loss, Record, train

Task = Literal["autoencoder", "classifier"]
# steps; the last is measured anyway
MEASURE_AT = (0, 900, 1800, 1900, 2000, 2200, 2500, 3000, 3500, 4000, 4500, 5000, 5500)
FIT_SAMPLES = 20_000  # for a least-squares fit of some dozens of coefficients for each unit

Shape = tuple[Count, Count, Count]  # channels, height, width


def bundled(task: Task) -> Images:
    """The book's images for a task.

    The digits for "classifier", and for "autoencoder" 20,000 grey patches of 12 × 12 pixels.  Raises
    ValueError for another task.
    """
    if task == "classifier":
        return digits()
    return natural_patches(20_000, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True, kw_only=True)
class Setting(protocol.MirrorSetting):
    """One run of a ``task``, "autoencoder" or "classifier".

    ``activation`` is that of the first layer; the others are GELU.
    """

    steps: Count = 6000
    batch: Count = 64
    noise: Count = 256
    learning_rate: Positive = 3e-3
    task: Task = "autoencoder"
    activation: str = "tanh"
    width: Count = 32

    def __post_init__(self) -> None:
        activations.get(self.activation)


def untrained(images: Images, setting: Setting) -> DeepMLP:
    """The network before training: weights and biases uniform in ±1/√(inputs), float64, drawn from the seed.

    Raises ValueError for a classifier of images without labels.
    """
    d = images.pixels[0].numel()
    out = d if setting.task == "autoencoder" else int(_labels(images).max()) + 1
    sizes = [d, *[setting.width] * 3, out]
    generator = torch.Generator().manual_seed(setting.seed)

    def uniform(*shape: int, inputs: int) -> Tensor:
        draw = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return ((2 * draw - 1) / inputs**0.5).requires_grad_()

    weights = [uniform(m, n, inputs=n) for n, m in pairwise(sizes)]
    biases = [uniform(m, inputs=n) for n, m in pairwise(sizes)]
    return DeepMLP(weights, biases, [setting.activation, "gelu", "gelu"])


def _labels(images: Images) -> Int[Tensor, "n"]:
    if images.labels is None:
        raise ValueError(f"images must have labels for a classifier, {images.name} have none")
    return images.labels


def mirror_loss(images: Images, setting: Setting) -> Loss[nn.Module]:
    """The loss of a run: its task, and to commute with the mirror."""
    x, shape = images.vectors(), images.shape

    def move(x: Tensor) -> Tensor:
        return mirrored(x, shape)

    def reproduce(y: Tensor, chosen: Tensor) -> Tensor:
        return (y - x[chosen]).square().mean()

    def classify(y: Tensor, chosen: Tensor) -> Tensor:
        return nn.functional.cross_entropy(y, _labels(images)[chosen])

    task, move_output = (classify, _stay) if setting.task == "classifier" else (reproduce, move)
    # noise is drawn in float32, which is several times faster; the arithmetic stays in float64
    return protocol.mirror_loss(
        x, setting, task, move=move, move_output=move_output, noise_dtype=torch.float32
    )


def _stay(y: Tensor) -> Tensor:
    return y


@dataclass(frozen=True, eq=False)
class LayerFit:
    """How equivariant each layer is: the least-squares ``actions`` A_i, their ``errors``, and ``end_to_end``.

    An error is the median over samples y of ‖f_i(mirror y) − A_i f_i(y)‖ / ‖f_i(y)‖, where f_i is the
    network up to layer i; end to end, A is the given action on outputs.
    """

    actions: tuple[Float[Tensor, "_ _"], ...]
    errors: tuple[float, ...]
    end_to_end: float


def fit_layers(
    network: DeepMLP,
    shape: Shape,
    axis: Axis = "left-right",
    *,
    samples: Count = 100_000,
    noise_scale: Positive = 1.0,
    seed: Seed = 0,
) -> LayerFit:
    """Measure a network on white noise of standard deviation ``noise_scale``.

    The A_i are fitted on 20,000 draws, the errors taken on ``samples`` others.  Outputs of the length
    of the inputs are images and are mirrored, others are invariant.  Raises ValueError where ``shape``
    does not fit. Source: [B], experiments; there the errors are medians over 100,000 noise samples.
    """
    generator = torch.Generator().manual_seed(seed)
    fit, test = (
        noise_scale * torch.randn(n, network.dim_in, generator=generator, dtype=torch.float32).double()
        for n in (FIT_SAMPLES, samples)
    )
    before, after = (hidden_values(network, x) for x in (fit, mirrored(fit, shape, axis)))
    actions = [least_squares_action(h, g) for h, g in zip(before[:-1], after[:-1])]
    before, after = (hidden_values(network, x) for x in (test, mirrored(test, shape, axis)))
    expected = [h @ a.T for h, a in zip(before, actions)]
    images = network.dim_out == network.dim_in
    expected.append(mirrored(before[-1], shape, axis) if images else before[-1])
    *errors, end_to_end = (
        float(((g - e).norm(dim=1) / h.norm(dim=1)).median()) for h, g, e in zip(before, after, expected)
    )
    return LayerFit(tuple(actions), tuple(errors), end_to_end)


def errors(
    network: DeepMLP, shape: Shape, *, samples: Count = 100_000, noise_scale: Positive = 1.0
) -> dict[str, float]:
    """:func:`fit_layers` of both axes in one row: ``f1 left-right``, …, ``end up-down``."""
    found = {}
    for axis in AXES:
        fit = fit_layers(network, shape, axis, samples=samples, noise_scale=noise_scale)
        found |= {f"f{i} {axis}": error for i, error in enumerate(fit.errors, 1)}
        found[f"end {axis}"] = fit.end_to_end
    return found


def mirror_symmetry(network: DeepMLP, shape: Shape, axis: Axis = "left-right") -> Symmetry:
    """The symmetry k that takes the network nearest to its mirror image.

    The image is θ^g = (W_1 ρ(g)⁻¹, W_2, …, ρ'(g) W_L).  There is no bound on the distance: a trained
    network is equivariant only nearly.  The latent action of Theorem 4.1 is ρ_1(g) = k_1(g)⁻¹.
    """
    on_images = mirrored(torch.eye(network.dim_in, dtype=torch.float64), shape, axis).T
    invariant = network.dim_out != network.dim_in
    on_outputs = torch.eye(network.dim_out, dtype=torch.float64) if invariant else on_images
    return nearest_symmetry(network, transport(network, on_images, on_outputs))


@dataclass(frozen=True, eq=False)
class Units:
    """The first hidden layer matched with its mirror image, one entry for each unit.

    ``partner[j]`` is the unit that unit j is carried to, ``sign[j]`` the factor it gets (a sign for
    tanh, positive for ReLU); ``misfit[j]`` is ‖mirrored w_j − sign · w_partner‖ / ‖w_j‖, with the bias;
    ``outgoing[j]`` the norm of its outgoing weights; ``opposite[j]`` the smallest cosine of w_j with
    another row, -1 for a pair ±w.
    """

    partner: Int[Tensor, "width"]
    sign: Float[Tensor, "width"]
    misfit: Float[Tensor, "width"]
    outgoing: Float[Tensor, "width"]
    opposite: Float[Tensor, "width"]


def units(network: DeepMLP, shape: Shape, axis: Axis = "left-right") -> Units:
    """Which unit of the first layer is the mirror image of which, by :func:`mirror_symmetry`."""
    symmetry, layers = mirror_symmetry(network, shape, axis), network.layers
    partner, sign = symmetry.permutations[0], symmetry.factors[0]
    rows = layers.rows(0)
    moved = torch.cat([mirrored(rows[:, :-1], shape, axis), rows[:, -1:]], 1)
    misfit = (moved - sign[:, None] * rows[partner]).norm(dim=1) / rows.norm(dim=1)
    directions = nn.functional.normalize(rows, dim=1)
    opposite = (directions @ directions.T).amin(dim=1)
    return Units(partner, sign, misfit, layers.weights[1].norm(dim=0), opposite)


def run(
    images: Images,
    setting: Setting,
    *,
    measure_at: tuple[int, ...] = (),
    watch: Callable[[DeepMLP], object] | None = None,
    progress: bool = True,
) -> tuple[DeepMLP, Record]:
    """Train one network and return it with its record, whose rows hold :func:`errors`, on fewer samples.

    Measured after the steps in ``measure_at`` and after the last; ``watch`` is shown the network each
    time.
    """

    def measure(network: DeepMLP) -> dict[str, float]:
        if watch is not None:
            watch(network)
        return errors(network, images.shape, samples=4000, noise_scale=setting.noise_scale)

    network = untrained(images, setting)
    record = train(
        network,
        mirror_loss(images, setting),
        setting.plan,
        seed=setting.seed,
        measure=measure,
        measure_at=measure_at,
        bar=f"{setting.task}, {setting.activation}, seed {setting.seed}" if progress else None,
    )
    return network, record


def outcome(
    network: DeepMLP, record: Record, shape: Shape, *, noise_scale: Positive = 1.0
) -> dict[str, object]:
    """All that the book says of a trained network, as numbers and lists for a JSON file.

    ``errors`` on 100,000 samples of noise of standard deviation ``noise_scale``, ``distance`` = ‖A_1 −
    Q‖ / √width for the nearest signed permutation Q, the ``units`` of the first layer, and the ``rows``
    of its record.
    """
    action = fit_layers(network, shape, samples=1, noise_scale=noise_scale).actions[0]
    distance = (action - nearest_signed_permutation(action)).norm() / len(action) ** 0.5
    return {
        "errors": errors(network, shape, noise_scale=noise_scale),
        "distance": float(distance),
        "units": {name: column.tolist() for name, column in vars(units(network, shape)).items()},
        "rows": record.rows,
    }
