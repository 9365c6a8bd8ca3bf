"""What one call of the library earns: nothing, but for the certificate of problem set 1, which ``absorb``
finds for the block with ReLU, and which serves here, too.  The page for teachers says so.
"""

import pytest
import torch

from samefn import MLP, DeepMLP, Residual, absorb, align, reduce
from solving import STUDENTS, instance, judge


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def block(given, activation):
    biases = () if "bias" not in given else (tensor(given["bias"]), torch.zeros(len(given["down"][0])))
    return MLP(tensor(given["up"]), tensor(given["down"]).T.contiguous(), activation, *biases)


def certified(given):
    """The certificate of the block with the library's ReLU, as large as it may be."""
    Y = absorb(Residual(block(given, "relu"))).certificate
    return torch.zeros(len(given["up"][0]), len(given["up"][0])) if Y is None else Y / Y.abs().max()


def turned(given, activation, **skip):
    verdict = absorb(Residual(block(given, activation), **skip))
    return verdict.network or block(given, activation)


def sets(given):
    S = absorb(Residual(block(given, "relu"))).flipped or []
    return {"sets": [list(S), list(S)]}


def rewrite(given):
    net = turned(given, "relu")
    return {"up": net.up.tolist(), "down": net.down.tolist()}


def decide(given):
    verdicts = []
    for each in given["blocks"]:
        found = absorb(Residual(block(each, "relu"), tensor(each["skip"])))
        Y = torch.eye(4) if found.certificate is None else found.certificate
        verdicts.append({"S": list(found.flipped)} if found.flipped else {"Y": Y.tolist()})
    return {"verdicts": verdicts}


def leaky_gelu(given):
    net = turned(given, "gelu", skip=tensor(given["skip"]))
    parts = net.up, net.up_bias, net.down, net.down_bias
    return {name: part.tolist() for name, part in zip(("up", "bias", "down", "out"), parts)}


def layers(given):
    return [tensor(rows)[:, :-1] for rows in given], [tensor(rows)[:, -1] for rows in given]


def aligned(given):
    A, B = (DeepMLP(*layers(given[name]), activation="tanh") for name in "AB")
    found = align(A, B)
    order = [list(range(6))] * 2 if found is None else [p.tolist() for p in found.permutations]
    sign = [[1] * 6] * 2 if found is None else [s.sign().tolist() for s in found.scales]
    return {"order1": order[0], "signs1": sign[0], "order2": order[1], "signs2": sign[1]}


def fewer(given):
    weights = [tensor(given["up"]), tensor(given["down"]).T.contiguous()]
    net = reduce(
        DeepMLP(weights, [tensor(given["bias"]), tensor(given["out"])], activation="softplus")
    ).network
    (up, down), (bias, out) = net.weights, net.biases
    return {"up": up.tolist(), "bias": bias.tolist(), "down": down.tolist(), "out": out.tolist()}


def layerwise(given):
    net = reduce(
        DeepMLP(
            [tensor(given["W1"]), tensor(given["W2"])],
            [tensor(given["b"]), torch.zeros(2)],
            activation="tanh",
        )
    ).network
    (W1, W2), (b, _) = net.weights, net.biases
    return {"W1": W1.tolist(), "b": b.tolist(), "W2": W2.tolist(), "order": [1, 2, 0], "signs": [1] * 3}


def width(given):
    nets = [turned(each, "silu", skip=tensor(each["skip"])) for each in given["blocks"]]
    return {"blocks": [{"up": net.up.tolist(), "down": net.down.tolist()} for net in nets]}


def stack(given):
    return {"Y": [certified(each).tolist() for each in given["blocks"]]}


CALLS = {
    **{("ps1", call.__name__): call for call in (sets, rewrite, decide)},
    ("ps2", "leaky_gelu"): leaky_gelu,
    ("ps3", "align"): aligned,
    ("ps3", "fewer"): fewer,
    ("ps4", "layerwise"): layerwise,
    ("ps5", "width"): width,
    ("ps5", "stack"): stack,
}


@pytest.mark.parametrize("student", STUDENTS)
@pytest.mark.parametrize(("assignment", "name"), CALLS)
def test_a_call_earns_nothing(assignment, name, student):
    given = instance(assignment, student)[name]
    assert judge(assignment, name, CALLS[assignment, name](given), student).points == 0
