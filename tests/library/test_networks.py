"""The networks compute what their docstrings say, and refuse what they cannot take."""

import pytest
import torch
from torch import nn

from samefn import activations
from samefn.networks import MLP, DeepMLP, GatedMLP, Residual, Stack, hyper_connection, random_mlp

D, M = 3, 5


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def mlp(**changes) -> MLP:
    arguments = {
        "up": normal(M, D),
        "down": normal(D, M, seed=1),
        "up_bias": normal(M),
        "down_bias": normal(D),
    }
    return MLP(**{**arguments, **changes})


def gated(**changes) -> GatedMLP:
    arguments = {"gate": normal(M, D), "up": normal(M, D, seed=1), "down": normal(D, M, seed=2)}
    return GatedMLP(**{**arguments, **changes})


def residual(**changes) -> Residual:
    return Residual(**{"block": mlp(), "skip": normal(D, D), **changes})


def test_mlp_is_the_sum_over_its_units():
    block, x = mlp(activation="gelu"), normal(7, D, seed=3)
    expected = block.down_bias + sum(
        block.activation(x @ block.up[i] + block.up_bias[i])[:, None] * block.down[:, i] for i in range(M)
    )
    torch.testing.assert_close(block(x), expected)
    assert (block.width, block.dim_in, block.dim_out) == (M, D, D)


def test_gated_mlp_is_the_sum_over_its_units():
    block, x = gated(), normal(7, D, seed=3)
    expected = sum(
        (block.activation(x @ block.gate[i]) * (x @ block.up[i]))[:, None] * block.down[:, i]
        for i in range(M)
    )
    torch.testing.assert_close(block(x), expected)
    assert (block.width, block.dim_in, block.dim_out) == (M, D, D)


def test_residual_adds_the_skip():
    block, skip, x = mlp(), normal(D, D, seed=4), normal(2, 7, D, seed=3)
    torch.testing.assert_close(Residual(block)(x), x + block(x))
    torch.testing.assert_close(Residual(block, skip)(x), x @ skip.T + block(x))
    torch.testing.assert_close(Residual(block).skip_matrix(), torch.eye(D, dtype=torch.float64))


def test_stack_applies_the_first_block_first():
    first, last = mlp(), MLP(normal(2, D), normal(4, 2))
    x = normal(7, D, seed=3)
    torch.testing.assert_close(Stack([first, last])(x), last(first(x)))
    assert (Stack([first, last]).dim_in, Stack([first, last]).dim_out) == (D, 4)


def test_a_single_input_needs_no_batch():
    assert mlp()(normal(D)).shape == (D,) and residual()(normal(D)).shape == (D,)


def test_activation_by_name_and_by_object():
    own = activations.leaky_relu(-2)
    assert mlp(activation=own).activation is own
    assert mlp(activation="gelu").activation is activations.get("gelu")


def test_leaf_tensors_keep_requires_grad_and_parameters_stay_themselves():
    weights = normal(M, D).requires_grad_()
    parameter = nn.Parameter(normal(D, M))
    block = mlp(up=weights, down=parameter)
    assert block.up.requires_grad and not block.up_bias.requires_grad
    assert block.down is parameter
    block(normal(2, D)).sum().backward()
    assert block.up.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    block = MLP(normal(M, D, dtype=dtype), normal(D, M, dtype=dtype))
    assert Residual(block)(normal(2, D, dtype=dtype)).dtype == dtype


def test_state_can_be_saved_and_loaded():
    source, target = residual(), residual(block=mlp(up=normal(M, D, seed=9)), skip=normal(D, D, seed=9))
    target.load_state_dict(source.state_dict())
    torch.testing.assert_close(target(normal(4, D)), source(normal(4, D)))


def test_random_mlp_is_reproducible_and_has_the_stated_shapes():
    draw = lambda: random_mlp(4, 6, "gelu", biases=True, generator=torch.Generator().manual_seed(5))
    first, second = draw(), draw()
    assert torch.equal(first.up, second.up) and torch.equal(first.down_bias, second.down_bias)
    assert first.up.shape == (6, 4) and first.down.shape == (4, 6) and first.up.dtype == torch.float64
    assert random_mlp(4, 6, generator=torch.Generator()).up_bias is None


def test_random_mlp_has_the_stated_variances():
    block = random_mlp(200, 300, generator=torch.Generator().manual_seed(0))
    assert float(block.up.var()) * 200 == pytest.approx(1, abs=0.03)
    assert float(block.down.var()) * 300 == pytest.approx(1, abs=0.03)


BUILDERS = {
    "up": mlp,
    "down": mlp,
    "up_bias": mlp,
    "down_bias": mlp,
    "gate": gated,
    "skip": residual,
}
SHAPES = {"up": (M, D), "down": (D, M), "up_bias": (M,), "down_bias": (D,), "gate": (M, D), "skip": (D, D)}


def with_nan(t: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(t.numel()).view(t.shape) == 1, float("nan"), t)


SPOILT = {
    "a list": (lambda t: t.tolist(), TypeError, "torch.Tensor of shape .*, got list"),
    "an array": (lambda t: t.numpy(), TypeError, "torch.Tensor .*got a float64 ndarray"),
    "integers": (lambda t: t.to(torch.int64), TypeError, "floating torch.Tensor .*got a torch.int64"),
    "complex": (
        lambda t: t.to(torch.complex128),
        TypeError,
        "floating torch.Tensor .*got a torch.complex128",
    ),
    "one dimension too many": (lambda t: t[None], ValueError, "shape"),
    "NaN": (with_nan, ValueError, "finite"),
    "infinity": (lambda t: t / 0, ValueError, "finite"),
    "on the meta device": (lambda t: t.to("meta"), ValueError, "meta device"),
    "not a leaf": (lambda t: t.requires_grad_() * 2, ValueError, r"detach\(\)"),
}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("how", SPOILT)
def test_spoilt_weights_are_named(name, how):
    spoil, error, words = SPOILT[how]
    with pytest.raises(error, match=rf"^{name} .*{words}"):
        BUILDERS[name](**{name: spoil(normal(*SHAPES[name]))})


@pytest.mark.parametrize("name", [n for n in BUILDERS if n not in ("up", "gate")])  # these come first
def test_wrong_shapes_are_named_with_the_shape_needed(name):
    wrong = normal(*(size + 1 for size in SHAPES[name]))
    with pytest.raises(
        ValueError, match=rf"^{name} must be .* of shape .*, got .* of shape \({wrong.shape[0]},"
    ):
        BUILDERS[name](**{name: wrong})


@pytest.mark.parametrize("name", [n for n in BUILDERS if n not in ("up", "gate")])
def test_mixed_dtypes_are_named(name):
    with pytest.raises(ValueError, match=rf"^{name} must have the dtype .*float64.*got torch.float32"):
        BUILDERS[name](**{name: normal(*SHAPES[name], dtype=torch.float32)})


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: MLP(normal(0, D), normal(D, 0)), ValueError, "^up must not be empty"),
        (lambda: MLP(normal(M, 0), normal(D, M)), ValueError, "^up must not be empty"),
        (lambda: MLP(normal(M, D), normal(0, M)), ValueError, "^down must not be empty"),
        (lambda: GatedMLP(normal(0, D), normal(0, D), normal(D, 0)), ValueError, "^gate must not be empty"),
        (lambda: gated(gate=normal(M, D, dtype=torch.float32)), ValueError, "^gate must have the dtype"),
        (lambda: mlp(activation="swish++"), ValueError, "^activation 'swish"),
        (lambda: mlp(activation=torch.relu), TypeError, "^activation"),
        (lambda: Residual(nn.Linear(2, 2)), TypeError, "^block must be an MLP or a GatedMLP, got Linear"),
        (lambda: Residual(MLP(normal(M, D), normal(2, M))), ValueError, "^block .*3 inputs and 2 outputs"),
        (
            lambda: residual(skip=normal(D, D + 1)),
            ValueError,
            r"^skip must be .* of shape \(3, 3\), got .* of shape \(3, 4\)",
        ),
        (lambda: Stack([]), ValueError, "^blocks must hold"),
        (lambda: Stack([mlp(), MLP(normal(M, 2), normal(D, M))]), ValueError, r"blocks\[0\] has 3 outputs"),
        (lambda: Stack([mlp(), nn.Linear(D, D)]), TypeError, r"^blocks\[1\] must .* got Linear"),
        (lambda: Stack([mlp(), torch.relu]), TypeError, r"^blocks\[1\] must"),
        (lambda: random_mlp(0, 1, generator=torch.Generator()), ValueError, "^d must be .* at least 1"),
        (lambda: random_mlp(2, 0, generator=torch.Generator()), ValueError, "^m must be .* at least 1"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biases", [True, False])
def test_layers_are_the_weights_in_float64_and_come_back(dtype, biases):
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(m, n, generator=generator, dtype=dtype) for n, m in ((3, 4), (4, 2))]
    network = DeepMLP(
        weights, [torch.randn(m, generator=generator, dtype=dtype) for m in (4, 2)] if biases else None
    )
    layers = network.layers
    assert layers.widths == (4,) and {t.dtype for t in layers.weights + layers.biases} == {torch.float64}
    assert all(torch.equal(a, b.double()) for a, b in zip(layers.weights, weights, strict=True))
    assert torch.equal(layers.rows(0), torch.cat([layers.weights[0], layers.biases[0][:, None]], 1))
    again = network.rebuilt(layers)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), network.parameters(), strict=True))
    assert (again.biases is None) is not biases and again.activations == network.activations


def test_a_replaced_layer_leaves_the_others_and_brings_its_bias():
    network = DeepMLP([torch.eye(2, dtype=torch.float64)] * 2)
    layers = network.layers
    moved = layers.replaced(1, 3 * layers.weights[1])
    assert torch.equal(moved.weights[0], layers.weights[0]) and torch.equal(
        layers.weights[1], torch.eye(2, dtype=torch.float64)
    )
    x = torch.ones(1, 2, dtype=torch.float64)
    assert torch.allclose(network.rebuilt(moved)(x), 3 * network(x))
    assert network.rebuilt(moved).biases is None
    shifted = network.rebuilt(layers.replaced(1, layers.weights[1], torch.ones(2, dtype=torch.float64)))
    assert torch.allclose(shifted(x), network(x) + 1)


def test_layers_hold_no_gradient():
    network = DeepMLP([torch.eye(2).requires_grad_()])
    assert not network.layers.weights[0].requires_grad


def test_a_hyper_connection_of_any_layout():
    mixing = torch.arange(9.0).view(3, 3)
    for c in (mixing, mixing.T, mixing.repeat(1, 2)[:, ::2]):
        x = torch.arange(6.0).view(3, 2)
        assert torch.equal(hyper_connection(c, 2) @ x.flatten(), (c @ x).flatten())
