"""The networks of the book: a block, a gated block, a skip around it, and a stack of them.

Inputs are batches of row vectors, x of shape (..., d); a weight matrix W acts as x @ W.T, so
that its rows are the units' weight vectors, as in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from . import activations
from .activations import Activation
from .arguments import Count
from .draw import normal

__all__ = [
    "MLP",
    "DeepMLP",
    "GatedMLP",
    "Layers",
    "Residual",
    "Stack",
    "hyper_connection",
    "random_gated_mlp",
    "random_mlp",
]


def checked_weights(name: str, value: Float[Tensor, "..."], *shape: int | None) -> nn.Parameter:
    """``value`` as a parameter, if its numbers are finite and its ``shape`` fits (None: any size).

    Raises ValueError, naming the argument by ``name``, for anything else.
    """
    if shape and (value.dim() != len(shape) or any(w not in (None, g) for w, g in zip(shape, value.shape))):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(value.shape)}")
    if value.numel() == 0:
        raise ValueError(f"{name} must not be empty, got shape {tuple(value.shape)}")
    if value.device.type == "meta":
        raise ValueError(f"{name} is on the meta device and holds no numbers; move it to a real device")
    if not torch.isfinite(value).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    if isinstance(value, nn.Parameter):
        return value
    if not value.is_leaf:
        raise ValueError(f"{name} is the result of a differentiable computation; pass {name}.detach()")
    return nn.Parameter(value, requires_grad=value.requires_grad)


def require_same_kind(**tensors: Tensor | None) -> None:
    """Raises ValueError, naming the argument, unless all given tensors share one dtype and one device."""
    given = {name: t for name, t in tensors.items() if t is not None}
    first, reference = next(iter(given.items()))
    for name, tensor in given.items():
        if tensor.dtype != reference.dtype or tensor.device != reference.device:
            raise ValueError(
                f"{name} must have the dtype and device of {first}, {reference.dtype} on {reference.device}, "
                f"got {tensor.dtype} on {tensor.device}"
            )


class Block(nn.Module):
    """What plain and gated blocks share: m units, read by the rows of ``up``, written by the columns of
    ``down``.
    """

    up: nn.Parameter
    down: nn.Parameter
    activation: Activation

    @property
    def width(self) -> int:
        return self.up.shape[0]

    @property
    def dim_in(self) -> int:
        return self.up.shape[1]

    @property
    def dim_out(self) -> int:
        return self.down.shape[0]

    def extra_repr(self) -> str:
        return f"{self.dim_in} → {self.width} → {self.dim_out}, {self.activation.name}"


class MLP(Block):
    """x ↦ down @ σ(up @ x + up_bias) + down_bias.

    ``up`` has shape (m, d_in), ``down`` (d_out, m), ``up_bias`` (m,), ``down_bias`` (d_out,); a
    bias that is None does not exist.  All share one floating dtype and device.  Tensors become
    parameters that require a gradient only if they did before.

    Raises TypeError or ValueError, naming the argument, for anything else.

    >>> from samefn import MLP
    >>> block = MLP(up=torch.tensor([[2.0], [3.0]]), down=torch.tensor([[1.0, -1.0]]))
    >>> block(torch.tensor([[1.0], [-1.0]])).tolist()  # 2σ(x) gives 2, 3σ(x) gives 3
    [[-1.0], [0.0]]
    """

    def __init__(
        self,
        up: Float[Tensor, "m d_in"],
        down: Float[Tensor, "d_out m"],
        activation: str | Activation = "relu",
        up_bias: Float[Tensor, "m"] | None = None,
        down_bias: Float[Tensor, "d_out"] | None = None,
    ) -> None:
        super().__init__()
        self.up, self.down = checked_weights("up", up), checked_weights("down", down)
        self.up_bias = None if up_bias is None else checked_weights("up_bias", up_bias)
        self.down_bias = None if down_bias is None else checked_weights("down_bias", down_bias)
        require_same_kind(up=up, down=down, up_bias=up_bias, down_bias=down_bias)
        self.activation = activations.get(activation)

    def forward(self, x: Float[Tensor, "... {self.dim_in}"]) -> Float[Tensor, "... {self.dim_out}"]:
        require_same_kind(up=self.up, x=x)
        hidden = self.activation(nn.functional.linear(x, self.up, self.up_bias))
        return nn.functional.linear(hidden, self.down, self.down_bias)


class GatedMLP(Block):
    """x ↦ down @ (g(gate @ x + gate_bias) * (up @ x)), g the activation: SwiGLU, GeGLU, ReGLU, GLU.

    ``gate`` and ``up`` have shape (m, d_in), ``down`` (d_out, m), ``gate_bias`` (m,) or None.
    ``activation="identity"`` is the bilinear block, ``"sigmoid"`` the original GLU.  Raises as
    :class:`MLP` does.

    >>> from samefn import GatedMLP
    >>> one = torch.ones(1, 1)
    >>> bilinear = GatedMLP(gate=one, up=one, down=one, activation="identity")
    >>> bilinear(torch.tensor([[3.0]])).item()  # x · x
    9.0
    """

    def __init__(
        self,
        gate: Float[Tensor, "m d_in"],
        up: Float[Tensor, "m d_in"],
        down: Float[Tensor, "d_out m"],
        activation: str | Activation = "silu",
        gate_bias: Float[Tensor, "m"] | None = None,
    ) -> None:
        super().__init__()
        self.gate, self.up = checked_weights("gate", gate), checked_weights("up", up)
        self.down = checked_weights("down", down)
        self.gate_bias = None if gate_bias is None else checked_weights("gate_bias", gate_bias)
        require_same_kind(up=up, gate=gate, down=down, gate_bias=gate_bias)
        self.activation = activations.get(activation)

    def forward(self, x: Float[Tensor, "... {self.dim_in}"]) -> Float[Tensor, "... {self.dim_out}"]:
        require_same_kind(up=self.up, x=x)
        hidden = self.activation(nn.functional.linear(x, self.gate, self.gate_bias)) * (x @ self.up.T)
        return hidden @ self.down.T


class Residual(nn.Module):
    """x ↦ skip @ x + block(x); ``skip`` of shape (d, d), None for the identity.

    Raises ValueError if the block does not map R^d to itself or ``skip`` is not d×d.

    >>> from samefn import MLP, Residual
    >>> block = MLP(up=torch.tensor([[1.0]]), down=torch.tensor([[-1.0]]))
    >>> Residual(block)(torch.tensor([[2.0], [-2.0]])).tolist()  # x - ReLU(x)
    [[0.0], [-2.0]]
    """

    def __init__(
        self, block: MLP | GatedMLP, skip: Float[Tensor, "{block.dim_in} {block.dim_in}"] | None = None
    ) -> None:
        super().__init__()
        if block.dim_in != block.dim_out:
            raise ValueError(
                f"block must map R^d to itself, got {block.dim_in} inputs and {block.dim_out} outputs"
            )
        self.block = block
        self.skip = None if skip is None else checked_weights("skip", skip)
        require_same_kind(**{"block.up": block.up, "skip": skip})

    @property
    def dim_in(self) -> int:
        return self.block.dim_in

    dim_out = dim_in

    def skip_matrix(self) -> Float[Tensor, "d d"]:
        """The skip branch as a matrix, the identity where ``skip`` is None."""
        if self.skip is None:
            return torch.eye(self.dim_in, dtype=self.block.up.dtype, device=self.block.up.device)
        return self.skip

    def forward(self, x: Float[Tensor, "... {self.dim_in}"]) -> Float[Tensor, "... {self.dim_in}"]:
        y = self.block(x)
        return (x if self.skip is None else x @ self.skip.T) + y


class Stack(nn.Module):
    """Composition of blocks, the first one applied first.

    Each block is a module with ``dim_in`` and ``dim_out``.  Raises ValueError for no blocks, or
    where one block's output does not fit the next, TypeError for anything else.

    >>> from samefn import Residual, Stack
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> draw = Draw(0)
    >>> blocks = [Residual(random_mlp(3, 5, generator=draw)) for _ in range(4)]
    >>> stack, x = Stack(blocks), draw.normal(10, 3)
    >>> torch.equal(stack(x), blocks[3](blocks[2](blocks[1](blocks[0](x)))))
    True
    """

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        blocks = list(blocks)
        if not blocks:
            raise ValueError("blocks must hold at least one block, got none")
        for i, block in enumerate(blocks):
            if (
                not isinstance(block, nn.Module)
                or not hasattr(block, "dim_in")
                or not hasattr(block, "dim_out")
            ):
                raise TypeError(
                    f"blocks[{i}] must be a module with dim_in and dim_out, got {type(block).__name__}"
                )
        self.blocks = nn.ModuleList(blocks)
        for i, (first, second) in enumerate(zip(self.blocks, self.blocks[1:])):
            if first.dim_out != second.dim_in:
                raise ValueError(
                    f"blocks[{i}] has {first.dim_out} outputs but blocks[{i + 1}] takes {second.dim_in}"
                )

    @property
    def dim_in(self) -> int:
        return int(self.blocks[0].dim_in)  # pyright: ignore[reportArgumentType]

    @property
    def dim_out(self) -> int:
        return int(self.blocks[-1].dim_out)  # pyright: ignore[reportArgumentType]

    def forward(self, x: Float[Tensor, "... {self.dim_in}"]) -> Float[Tensor, "... {self.dim_out}"]:
        for block in self.blocks:
            x = block(x)
        return x


@dataclass(frozen=True, eq=False)
class Layers:
    """The weights of a multilayer perceptron as a value: what symmetries and group actions act on.

    ``weights`` of shapes (n_1, n_0), …, (n_L, n_{L-1}) and ``biases`` of shapes (n_i,) in float64, a bias of
    0 where the network has none; ``activations`` of the L - 1 hidden layers.  Made by
    :attr:`DeepMLP.layers`, put back by :meth:`DeepMLP.rebuilt`; whether they fit is not checked here.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep
    >>> layers = random_deep("tanh", (3, 5, 4, 2), generator=Draw(0)).layers
    >>> layers.widths, [tuple(w.shape) for w in layers.weights]
    ((5, 4), [(5, 3), (4, 5), (2, 4)])
    >>> tuple(layers.rows(0).shape)  # three weights and a bias for each of five units
    (5, 4)
    """

    weights: tuple[Float[Tensor, "_ _"], ...]
    biases: tuple[Float[Tensor, "_"], ...]
    activations: tuple[Activation, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each hidden layer."""
        return tuple(len(w) for w in self.weights[:-1])

    def rows(self, i: int) -> Float[Tensor, "n _"]:
        """Incoming weights and bias of each unit of ``weights[i]``, side by side."""
        self._require(i)
        return torch.cat([self.weights[i], self.biases[i][:, None]], 1)

    def replaced(
        self, i: int, weight: Float[Tensor, "_ _"], bias: Float[Tensor, "_"] | None = None
    ) -> Layers:
        """These layers with another ``weights[i]``, and another ``biases[i]`` if one is given."""
        self._require(i)
        weights, biases = list(self.weights), list(self.biases)
        weights[i], biases[i] = weight, biases[i] if bias is None else bias
        return Layers(tuple(weights), tuple(biases), self.activations)

    def _require(self, i: int) -> None:
        if not 0 <= i < len(self.weights):
            raise ValueError(f"i must be between 0 and {len(self.weights) - 1}, got {i}")


class DeepMLP(nn.Module):
    """x ↦ W_L σ(… σ(W_1 x + b_1) …) + b_L: a multilayer perceptron of any depth L ≥ 1.

    ``weights`` are matrices of shapes (n_1, n_0), …, (n_L, n_{L-1}); ``biases`` as many vectors
    (n_i,), or None for none at all.  ``activation`` is one for all hidden layers, or a sequence
    with one for each.  All share one floating dtype and device.  Raises as :class:`MLP` does.

    >>> from samefn import DeepMLP
    >>> network = DeepMLP([torch.ones(2, 3), torch.ones(1, 2)], activation="relu")
    >>> network.dim_in, network.widths, network.dim_out
    (3, (2,), 1)
    >>> network(torch.tensor([[1.0, 1.0, 1.0]])).item()
    6.0
    """

    def __init__(
        self,
        weights: Sequence[Float[Tensor, "_ _"]],
        biases: Sequence[Float[Tensor, "_"]] | None = None,
        activation: str | Activation | Sequence[str | Activation] = "tanh",
    ) -> None:
        super().__init__()
        if len(weights) == 0:
            raise ValueError("weights must hold at least one matrix, got none")
        if biases is not None and len(biases) != len(weights):
            raise ValueError(
                f"biases must be None or one for each of the {len(weights)} weights, got {len(biases)}"
            )
        columns: int | None = None
        checked = []
        for i, weight in enumerate(weights):
            checked.append(checked_weights(f"weights[{i}]", weight, None, columns))
            columns = checked[-1].shape[0]
        self.weights = nn.ParameterList(checked)
        self.biases = None
        if biases is not None:
            self.biases = nn.ParameterList(
                [
                    checked_weights(f"biases[{i}]", b, w.shape[0])
                    for i, (b, w) in enumerate(zip(biases, weights))
                ]
            )
        named = {f"weights[{i}]": w for i, w in enumerate(weights)}
        require_same_kind(**named, **{f"biases[{i}]": b for i, b in enumerate(biases or ())})
        hidden = len(weights) - 1
        given = [activation] * hidden if isinstance(activation, (str, Activation)) else list(activation)
        if len(given) != hidden:
            raise ValueError(
                f"activation must be one, or one for each of the {hidden} hidden layers, got {len(given)}"
            )
        self.activations = tuple(activations.get(a) for a in given)

    @property
    def dim_in(self) -> int:
        return self.weights[0].shape[1]

    @property
    def dim_out(self) -> int:
        return self.weights[-1].shape[0]

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each hidden layer."""
        return tuple(w.shape[0] for w in self.weights[:-1])

    @property
    def layers(self) -> Layers:
        """The weights as a value in float64, without gradients; missing biases are 0."""
        weights = tuple(w.detach().to(torch.float64) for w in self.weights)
        biases = tuple(b.detach().to(torch.float64) for b in self.biases or ()) or tuple(
            torch.zeros(len(w), dtype=torch.float64) for w in weights
        )
        return Layers(weights, biases, self.activations)

    def rebuilt(self, layers: Layers) -> DeepMLP:
        """A network with those layers in this one's dtype; without biases if this has none and those are
        0.
        """
        dtype = self.weights[0].dtype
        keep = self.biases is not None or any(bool(b.any()) for b in layers.biases)
        biases = [b.to(dtype) for b in layers.biases] if keep else None
        return DeepMLP([w.to(dtype) for w in layers.weights], biases, layers.activations)

    def layer(self, i: int, y: Float[Tensor, "... n_in"]) -> Float[Tensor, "... n_out"]:
        """f_i, the i-th layer (1 ≤ i ≤ L) with its activation; the last layer is affine."""
        if not 1 <= i <= len(self.weights):
            raise ValueError(f"i must be between 1 and {len(self.weights)}, got {i}")
        weight = self.weights[i - 1]
        if y.shape[-1:] != weight.shape[1:]:
            raise ValueError(f"y must have shape (..., {weight.shape[1]}), got {tuple(y.shape)}")
        require_same_kind(weights=weight, y=y)
        z = nn.functional.linear(y, weight, None if self.biases is None else self.biases[i - 1])
        return self.activations[i - 1](z) if i <= len(self.activations) else z

    def forward(self, x: Float[Tensor, "... {self.dim_in}"]) -> Float[Tensor, "... {self.dim_out}"]:
        require_same_kind(weights=self.weights[0], x=x)
        for i in range(1, len(self.weights) + 1):
            x = self.layer(i, x)
        return x

    def extra_repr(self) -> str:
        sizes = [self.dim_in, *self.widths, self.dim_out]
        return " → ".join(map(str, sizes)) + ", " + ", ".join(a.name for a in self.activations)


def hyper_connection(mixing: Float[Tensor, "q q"], d: Count) -> Float[Tensor, "qd qd"]:
    """The skip matrix C ⊗ I_d by which hyper-connections mix q streams of width d, for C = ``mixing``.

    The streams are stacked, x = (x_1, ..., x_q) in R^{qd}; the result is a ``skip`` for
    :class:`Residual`.  Raises ValueError unless C is finite.
    Source: [A], Lemma 4 and the hyper-connections it covers.

    >>> from samefn.networks import hyper_connection
    >>> mixing = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    >>> hyper_connection(mixing, d=2).tolist()
    [[0.75, 0.0, 0.25, 0.0], [0.0, 0.75, 0.0, 0.25], [0.25, 0.0, 0.75, 0.0], [0.0, 0.25, 0.0, 0.75]]
    """
    mixing = checked_weights("mixing", mixing).detach().contiguous()  # as torch.kron needs it
    return torch.kron(mixing, torch.eye(d, dtype=mixing.dtype, device=mixing.device))


def random_mlp(
    d: Count,
    m: Count,
    activation: str | Activation = "relu",
    *,
    biases: bool = False,
    generator: torch.Generator,
) -> MLP:
    """A d → m → d block in float64 with independent normal weights of variance 1/d (up) and 1/m (down).

    With ``biases`` both biases are drawn, standard normal.  Raises ValueError unless d, m ≥ 1.

    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> random_mlp(d=8, m=32, activation="gelu", generator=Draw(0))
    MLP(8 → 32 → 8, gelu)
    """
    draw = partial(normal, generator=generator)
    up, down = draw(m, d) / d**0.5, draw(d, m) / m**0.5
    return MLP(up, down, activation, *((draw(m), draw(d)) if biases else ()))


def random_gated_mlp(
    d: Count,
    m: Count,
    activation: str | Activation = "silu",
    *,
    gate_bias: bool = False,
    generator: torch.Generator,
) -> GatedMLP:
    """A gated d → m → d block in float64, normal weights of variance 1/d (gate, up) and 1/m (down).

    With ``gate_bias`` a standard normal gate bias is drawn.  Raises ValueError unless d, m ≥ 1.

    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_gated_mlp
    >>> random_gated_mlp(d=8, m=32, gate_bias=True, generator=Draw(0)).gate_bias.shape
    torch.Size([32])
    """
    draw = partial(normal, generator=generator)
    gate, up, down = draw(m, d) / d**0.5, draw(m, d) / d**0.5, draw(d, m) / m**0.5
    return GatedMLP(gate, up, down, activation, draw(m) if gate_bias else None)
