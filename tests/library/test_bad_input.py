"""Bad input meets an error of the library that names the argument, whatever public function it is given to.

Two tests: types are tried on each annotated argument of every public callable, as introspection finds them;
what types cannot say is in the table WRONG, which must have a row for every callable that asks for it.
"""

import importlib
import inspect
import math
import pkgutil
import re
import traceback
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import samefn
from samefn import DeepMLP, GatedMLP, Residual, Stack, claims
from samefn.activations import get
from samefn.course import ProblemSet
from samefn.draw import Draw
from samefn.equivariance import attention, finite, groups, heads
from samefn.equivariance.alignment import Symmetry
from samefn.experiments import data, mirror_attention, mirror_mlp, records, training
from samefn.networks import MLP, random_gated_mlp, random_mlp
from samefn.pages.display import Stop
from samefn.pages.figures import figure
from samefn.skip import collect

HOME = Path(samefn.__file__).parent
NAN, INF = math.nan, math.inf


class Nothing:
    """What no argument may be."""

    def __repr__(self):
        return "Nothing()"


def public():
    """Every public function and method of the library by its name, and the constructors of its classes."""
    for info in pkgutil.walk_packages(samefn.__path__, "samefn."):
        if info.name == "samefn.arguments" or re.match(r"samefn\.(claims\.(?!ledger)|course\.)", info.name):
            continue  # what does the checking; the checks of a claim, which its registry calls; what reads
            # students' answers, where anything may come in: tests/course
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", None) != info.name:
                continue
            where = f"{info.name.removeprefix('samefn.')}.{name}"
            if inspect.isclass(value) and not issubclass(value, Exception):
                for key, member in vars(value).items():
                    function = getattr(member, "__func__", member)
                    ours = inspect.isfunction(function) and function.__module__.startswith("samefn")
                    if ours and (key in ("__init__", "__call__") or key[0] != "_"):
                        yield where + f".{key}" * (key != "__init__"), function
            elif callable(value) and not inspect.isclass(value):
                yield where, value


PUBLIC = {name: f for name, f in public() if inspect.signature(f).parameters.keys() - {"self", "cls"}}


def annotated(function):
    """The arguments that are annotated, each with the annotation as it is written."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: str(p.annotation) for p in parameters if p.annotation is not p.empty}


# --- types ------------------------------------------------------------------------------------------

NO_INTEGER = [True, 2.5, "2", 1j, torch.tensor(2), np.array(1)]
NO_NUMBER = [True, "1", 1j, torch.tensor(1.0), np.ones(1)]
NOT = {
    "int": NO_INTEGER,
    "Count": [*NO_INTEGER, 0, -1],
    "Natural": [*NO_INTEGER, -1],
    "Seed": [*NO_INTEGER, 2**64, -(2**63) - 1],
    "float": NO_NUMBER,
    "Finite": [*NO_NUMBER, NAN, INF, 10**400],
    "Positive": [*NO_NUMBER, NAN, INF, 10**400, 0, -1.5],
    "NonNegative": [*NO_NUMBER, NAN, INF, -1e-9],
    "Share": [*NO_NUMBER, NAN, 1.1, -0.1],
    "bool": [0, 1, 1.0, "no"],
    "str": [3, b"x", ["x"]],
    "torch.Generator": [0, 1.5, np.random.default_rng(0)],
}
ANYTHING = ("object", "Any")
# called millions of times where everything is tried; what calls them has checked
UNCHECKED = {
    "equivariance.groups.compose",
    "equivariance.groups.inverse",
}


def not_of(annotation):
    """Values that the annotation excludes, by a table of its own."""
    options = set(annotation.split(" | "))
    values = [Nothing()] + [None] * ("None" not in options)
    if len(options - {"None"}) > 1:
        return values
    (one,) = options - {"None"}
    if tensor := re.fullmatch(r"(Float|Int|Bool)(64)?\[Tensor, ['\"](.*)['\"]\]", one):
        kind, _, dims = tensor.groups()
        sizes = [2] * len(dims.split())
        values += [[1.0], np.ones(sizes), torch.ones(sizes, dtype=torch.complex64), "x", 2.0]
        values += [torch.ones(sizes, dtype=torch.int64 if kind == "Float" else torch.float64)]
        if not set("*.{") & set(dims):
            values += [torch.ones([2, *sizes], dtype=torch.float64 if kind == "Float" else torch.int64)]
        if len(set(dims.split()) - {"_"}) < len(sizes) and "_" not in dims and kind == "Float":
            values += [torch.ones([*sizes[1:], 3], dtype=torch.float64)]
    if one.startswith(("Sequence[", "tuple[", "list[")):
        values += [3, (Nothing(),)] if not {"object]", "T]"} & {one.split("[")[1]} else [3]
    if one.startswith("Callable["):
        values += [3, "relu"]
    return values + NOT.get(one, [])


# what stands before *arguments
BEFORE = {"self": None, "low": 0, "high": 2, "claim_id": "A-D1", "name": "x", "value": torch.ones(1)}


@pytest.mark.parametrize("name", [n for n in PUBLIC if n not in UNCHECKED])
def test_no_argument_takes_another_type(name):
    """Alone, so that what is wrong with the others does not hide it."""
    function, parameters = PUBLIC[name], inspect.signature(PUBLIC[name]).parameters
    assert annotated(function).keys() == parameters.keys() - {"self", "cls"}
    for argument, annotation in annotated(function).items():
        if annotation in ANYTHING or "{" in annotation:
            continue  # a size of an object: in the table
        names = list(parameters)
        before = [BEFORE.get(n) for n in names[: names.index(argument)]]
        for value in not_of(annotation):
            with pytest.raises((TypeError, ValueError)) as error:
                if parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL:
                    function(*before, value)
                else:
                    function(**{argument: value})
            assert re.match(rf"{argument}(\[.*?\])? must be ", str(error.value)), (argument, value)


def test_what_is_not_checked_is_no_more_than_it_says():
    assert {n for n, f in PUBLIC.items() if hasattr(f, "__no_type_check__")} == UNCHECKED


# --- what types cannot say --------------------------------------------------------------------------

ones, eye = torch.ones, torch.eye


def g():
    return Draw(0)


def problem_set():
    return '{"assignment": "ps6", "student": "me", "instances": {"near": {}}}'


def block(d=2, m=3):
    return random_mlp(d, m, generator=g())


def gated():
    return random_gated_mlp(2, 3, generator=g())


def residual():
    return Residual(block())


def deep(*sizes):
    sizes = sizes or (2, 3, 3, 2)
    return DeepMLP([g().normal(m, n) for n, m in pairwise(sizes)])


def heads_of(d=4):
    return attention.random_attention(2, d, 2, 2, generator=g())


def symmetry(activation="tanh"):
    return Symmetry((torch.arange(2),), (ones(2),), (get(activation),))


def patches():
    return heads.untrained_patch_attention(4, 4, 3, 2, 2, 2, generator=g())


def swap(n=2):
    """C_2 on n coordinates, the first two exchanged."""
    order = [1, 0, *range(2, n)]
    return groups.Representation(groups.cyclic(2), torch.stack([eye(n), eye(n)[order]]))


def images():
    return data.Images("two", ones(2, 1, 2, 2) * torch.tensor([0.0, 1.0]), torch.tensor([0, 1]))


def trained(**options):
    return training.train(
        deep(), lambda n, *_: n(ones(1, 2)).sum(), training.OneCycle(2), seed=0, bar=None, **options
    )


STAY, SWAP = (0, 1), (1, 0)
THETA, ACTION = (STAY, STAY), (STAY, SWAP)


def model(maps=((STAY, SWAP), (STAY, SWAP))):
    return finite.DeepModel((2, 2, 2), maps, (groups.symmetric(2),))


def submodel(**changes):
    same = dict.fromkeys(("include", "project"), (STAY,) * 3) | {"lift": (((STAY, STAY), (SWAP, SWAP)),) * 2}
    return finite.Submodel(model(), model(), **same | changes)


# For each callable: an argument that is wrong, and a call in which nothing else is.
WRONG = {
    "activations.Activation": [
        ("odd_slope", lambda f: type(get("relu"))("x", torch.relu, abs, odd_slope=NAN)),
        ("degree", lambda f: type(get("relu"))("x", torch.relu, abs, degree=INF)),
    ],
    "activations.get": [("activation", lambda f: f("ReLU")), ("activation", lambda f: f("quick_gelu"))],
    "activations.leaky_relu": [("slope", lambda f: f(1)), ("slope", lambda f: f(1.0))],
    "activations.monomial": [("degree", lambda f: f(1)), ("degree", lambda f: f(-2))],
    "claims.Claim.check": [("name", lambda f: f(claims.get("A-D1"), "no_such_check"))],
    "claims.check": [("claim_id", lambda f: f("A-T9")), ("name", lambda f: f("A-D1", "no_such_check"))],
    "claims.get": [("claim_id", lambda f: f("a-d1")), ("claim_id", lambda f: f(""))],
    "course.ProblemSet": [
        ("text", lambda f: ProblemSet("")),
        ("text", lambda f: ProblemSet("{}")),
        ("text", lambda f: ProblemSet("[1]")),
        ("assignment", lambda f: ProblemSet(problem_set().replace("ps6", "ps7"))),
    ],
    "course.ProblemSet.points": [("name", lambda f: f(ProblemSet(problem_set()), "far"))],
    "course.ProblemSet.record": [("name", lambda f: f(ProblemSet(problem_set()), "far", S=[]))],
    "draw.Draw.choice": [("options", lambda f: f(g(), [])), ("options", lambda f: f(g(), 3))],
    "draw.Draw.integer": [("high", lambda f: f(g(), 2, 2))],
    "draw.Draw.integers": [("high", lambda f: f(g(), 3, 1, 4)), ("shape", lambda f: f(g(), 0, 2, -1))],
    "draw.Draw.subset": [("size", lambda f: f(g(), 3, 4))],
    "draw.normal": [
        ("shape", lambda f: f(2, -1)),
        ("shape", lambda f: f(2, 2.0)),
        ("shape", lambda f: f((2, 3))),
    ],
    "equivariance.adjunction.convolve": [("kernel", lambda f: f(ones(1, 2, 5, 5), ones(1, 3, 3, 3)))],
    "equivariance.adjunction.deep_sets": [("n", lambda f: f(1, 1, 0))],
    "equivariance.alignment.Symmetry": [
        ("scales", lambda f: Symmetry((torch.arange(2),), (ones(3),), (get("tanh"),))),
        ("scales", lambda f: Symmetry((torch.arange(2),), (), (get("tanh"),))),
        ("permutations", lambda f: Symmetry((torch.tensor([0, 0]),), (ones(2),), (get("tanh"),))),
        ("permutations", lambda f: Symmetry((), (ones(2),), (get("tanh"),))),
    ],
    "equivariance.alignment.Symmetry.act": [
        ("layers", lambda f: f(symmetry(), deep(2, 3, 2).layers)),
        ("layers", lambda f: f(symmetry("gelu"), deep(2, 2, 2).layers)),
    ],
    "equivariance.alignment.Symmetry.apply": [
        ("network", lambda f: f(symmetry(), deep(2, 3, 2))),
    ],
    "equivariance.alignment.align": [
        ("b", lambda f: f(deep(2, 3, 2), deep(2, 4, 2))),
        ("tolerance", lambda f: f(deep(), deep(), tolerance=NAN)),
        ("tolerance", lambda f: f(deep(), deep(), tolerance=-1.0)),
        ("activations", lambda f: f(DeepMLP([eye(2)] * 2, activation="relu"), DeepMLP([eye(2)] * 2))),
    ],
    "equivariance.alignment.nearest_signed_permutation": [
        ("matrix", lambda f: f(ones(2, 2) * NAN)),
        ("matrix", lambda f: f(ones(2, 3))),
    ],
    "equivariance.alignment.nearest_symmetry": [("b", lambda f: f(deep(2, 3, 2), deep(2, 4, 2)))],
    "equivariance.approximate.nudged": [("size", lambda f: f(deep(), NAN, generator=g()))],
    "equivariance.approximate.slope": [("b", lambda f: f((1.0, 1.0), (1.0, 2.0)))],
    "equivariance.approximate.telescope": [("fitted", lambda f: f(deep(), [eye(2)], ones(3, 2)))],
    "equivariance.approximate.tilted": [("scale", lambda f: f(deep(), INF, generator=g()))],
    "equivariance.approximate.with_faint_unit": [("outgoing", lambda f: f(deep(), NAN, generator=g()))],
    "equivariance.attention.MultiHeadAttention": [
        ("key", lambda f: type(heads_of())(ones(2, 3, 4), ones(2, 2, 4), ones(2, 3, 4), ones(2, 4, 3))),
        (
            "output",
            lambda f: type(heads_of())(ones(2, 3, 4), ones(2, 3, 4), ones(2, 3, 4), ones(2, 4, 3) * NAN),
        ),
        ("query", lambda f: type(heads_of())(*[ones(0, 3, 4)] * 3, ones(0, 4, 3))),
    ],
    "equivariance.attention.MultiHeadAttention.forward": [
        ("x", lambda f: f(heads_of(), ones(5, 3))),
        ("x", lambda f: f(heads_of(), ones(5, 4, dtype=torch.float32))),
    ],
    "equivariance.attention.MultiHeadAttention.maps": [("x", lambda f: f(heads_of(), ones(5, 3)))],
    "equivariance.attention.head_action": [
        ("rho", lambda f: f(heads_of(), swap(3))),
        ("tolerance", lambda f: f(heads_of(), swap(4), tolerance=-1e-6)),
    ],
    "equivariance.attention.match_heads": [("products", lambda f: f([ones(2, 2, 2)], [ones(3, 2, 2)]))],
    "equivariance.attention.random_attention": [
        ("heads", lambda f: f(0, 4, 2, 2, generator=g())),
        ("d_k", lambda f: f(2, 4, -1, 2, generator=g())),
    ],
    "equivariance.attention.random_invertible": [("n", lambda f: f(1, 0, generator=g()))],
    "equivariance.finite.DeepModel": [
        ("parameters", lambda f: model((((0.0, 1.0),), (STAY,)))),
        ("parameters", lambda f: model(((STAY, (0.0, 1.0)), (STAY,)))),
        ("parameters", lambda f: model((((0, 2),), (STAY,)))),
        ("parameters", lambda f: model(((), (STAY,)))),
        ("sizes", lambda f: finite.DeepModel((2, 2), ((STAY,),) * 2, ())),
        ("symmetries", lambda f: finite.DeepModel((2, 2, 2), ((STAY,),) * 2, (groups.symmetric(3),))),
    ],
    "equivariance.finite.DeepModel.has_adjunction": [
        ("rho_in", lambda f: f(model(), ((0, 1, 2),) * 2, ACTION)),
        ("rho_out", lambda f: f(model(), ACTION, ((0, 0),) * 2)),
    ],
    "equivariance.finite.DeepModel.identifiable": [("theta", lambda f: f(model(), (STAY,)))],
    "equivariance.finite.DeepModel.latent_actions": [
        ("theta", lambda f: f(model(), (STAY,), ACTION, ACTION)),
        ("rho_in", lambda f: f(model(), THETA, ((0, 1, 2),) * 2, ACTION)),
        ("rho_in", lambda f: f(model(), THETA, ((0, 0),) * 2, ACTION)),
        ("rho_out", lambda f: f(model(), THETA, ACTION, (STAY,))),
        ("rho_out", lambda f: f(model(), THETA, ACTION, ())),
    ],
    "equivariance.finite.DeepModel.obstructions": [("theta", lambda f: f(model(), ((0, 2), STAY)))],
    "equivariance.finite.Submodel": [
        ("include", lambda f: submodel(include=(STAY,))),
        ("project", lambda f: submodel(project=(SWAP, STAY, STAY))),
        ("lift", lambda f: submodel(lift=())),
        ("lift", lambda f: submodel(lift=(((STAY, STAY),),) * 2)),
    ],
    "equivariance.finite.Submodel.beta": [("theta", lambda f: f(submodel(), (STAY,)))],
    "equivariance.finite.Submodel.embed": [("theta", lambda f: f(submodel(), (STAY,)))],
    "equivariance.finite.act": [
        ("k", lambda f: f((), THETA)),
        ("k", lambda f: f(((0, 1, 2),), THETA)),
    ],
    "equivariance.finite.actions": [
        ("within", lambda f: f(groups.cyclic(2), groups.cyclic(2).elements)),
        ("within", lambda f: f(groups.cyclic(2), [groups.cyclic(2)])),
        ("within", lambda f: f(groups.cyclic(2), swap())),
    ],
    "equivariance.finite.all_latent_actions": [
        ("within", lambda f: f(groups.cyclic(2), THETA, ACTION, ACTION, [])),
        ("within", lambda f: f(groups.cyclic(2), THETA, ACTION, ACTION, [groups.symmetric(3)])),
        ("rho_in", lambda f: f(groups.cyclic(2), THETA, ((0, 1, 2),) * 2, ACTION, [groups.symmetric(2)])),
        ("rho_out", lambda f: f(groups.cyclic(2), THETA, ACTION, (STAY,), [groups.symmetric(2)])),
    ],
    "equivariance.finite.is_action": [
        ("permutations", lambda f: f(groups.cyclic(2), ())),
        ("permutations", lambda f: f(groups.cyclic(2), (STAY,))),
        ("permutations", lambda f: f(groups.cyclic(2), (STAY, (0, 0)))),
        ("permutations", lambda f: f(groups.cyclic(2), (STAY, (0, 1, 2)))),
    ],
    "equivariance.finite.subgroups": [("n", lambda f: f(0)), ("n", lambda f: f(5)), ("n", lambda f: f(2.0))],
    "equivariance.finite_examples.all_but": [("dropped", lambda f: f("luck"))],
    "equivariance.finite_examples.composed_actions": [("actions", lambda f: f(model(), THETA, [ACTION] * 2))],
    "equivariance.finite_examples.examples": [("dropped", lambda f: f(groups.cyclic(2), (2, 2, 2), "luck"))],
    "equivariance.finite_examples.first_example": [("dropped", lambda f: f("luck"))],
    "equivariance.finite_examples.general_cases": [
        ("hidden", lambda f: list(f(groups.cyclic(2), ACTION, ACTION, 0)))
    ],
    "equivariance.finite_examples.general_model": [
        ("actions", lambda f: f(THETA, [groups.symmetric(2)], [ACTION] * 2))
    ],
    "equivariance.finite_examples.moved_layers": [("moves", lambda f: f(THETA, (SWAP, SWAP)))],
    "equivariance.finite_examples.normalised": [("rho", lambda f: f(groups.symmetric(3), ACTION))],
    "equivariance.groups.Group": [
        ("elements", lambda f: groups.Group("G", (), ())),
        ("elements", lambda f: groups.Group("G", (SWAP, STAY), (SWAP,))),
        ("elements", lambda f: groups.Group("G", (STAY, (0, 0)), (SWAP,))),
        ("elements", lambda f: groups.Group("G", (STAY,), (SWAP,))),
    ],
    "equivariance.groups.Group.cosets": [
        ("members", lambda f: f(groups.cyclic(2), [0, 5])),
        ("subgroup", lambda f: f(groups.cyclic(2), [1])),
    ],
    "equivariance.groups.Group.index": [("element", lambda f: f(groups.cyclic(2), (0, 1, 2)))],
    "equivariance.groups.Group.subgroup": [("members", lambda f: f(groups.cyclic(2), [5]))],
    "equivariance.groups.Representation": [
        ("matrices", lambda f: groups.Representation(groups.cyclic(2), ones(3, 2, 2))),
        ("matrices", lambda f: groups.Representation(groups.cyclic(2), ones(2, 2, 3))),
        ("matrices", lambda f: groups.Representation(groups.cyclic(2), ones(2, 2, 2))),
        ("matrices", lambda f: groups.Representation(groups.cyclic(2), ones(2, 2, 2) * NAN)),
        ("matrices", lambda f: groups.Representation(groups.cyclic(2), ones(2, 0, 0))),
    ],
    "equivariance.groups.Representation.__call__": [("element", lambda f: f(swap(), (0, 1, 2)))],
    "equivariance.groups.Representation.move": [("i", lambda f: f(swap(), 2, ones(1, 2)))],
    "equivariance.groups.compose": [("b", lambda f: f((0, 1), (0, 2)))],
    "equivariance.groups.cyclic": [("n", lambda f: f(0)), ("n", lambda f: f(True)), ("n", lambda f: f(3.0))],
    "equivariance.groups.dihedral": [("n", lambda f: f(2)), ("n", lambda f: f(None))],
    "equivariance.groups.generated": [
        ("permutations", lambda f: f()),
        ("permutations", lambda f: f((0, 0))),
        ("permutations", lambda f: f(SWAP, (0, 1, 2))),
        ("permutations", lambda f: f([1, 0])),
    ],
    "equivariance.groups.multiplied_out": [("generators", lambda f: f(groups.cyclic(2), {}))],
    "equivariance.groups.on_images": [
        ("group", lambda f: f(groups.cyclic(3), 4)),
        ("size", lambda f: f(groups.cyclic(2), 0)),
        ("size", lambda f: f(groups.cyclic(2), -1)),
    ],
    "equivariance.groups.representation": [
        ("generators", lambda f: f(groups.cyclic(2), {})),
        (
            "generators",
            lambda f: f(groups.dihedral(3), dict.fromkeys(groups.dihedral(3).generators, ones(2, 3))),
        ),
    ],
    "equivariance.groups.reynolds": [
        ("rho_out", lambda f: f(torch.relu, swap(), groups.trivial(groups.cyclic(3)))),
    ],
    "equivariance.groups.symmetric": [("n", lambda f: f(-1)), ("n", lambda f: f("3"))],
    "equivariance.groups.trivial": [
        ("n", lambda f: f(groups.cyclic(2), 0)),
        ("n", lambda f: f(groups.cyclic(2), -1)),
    ],
    "equivariance.heads.PatchAttention": [
        ("positions", lambda f: type(patches())(ones(3, 4), ones(4, 2), heads_of(3), ones(4, 3))),
        ("embed", lambda f: type(patches())(ones(2, 4), ones(4, 2), heads_of(3), ones(4, 2))),
    ],
    "equivariance.heads.PatchAttention.features": [
        ("x", lambda f: f(patches(), ones(4, 5))),
        ("x", lambda f: f(patches(), ones(4, 4, dtype=torch.float32))),
    ],
    "equivariance.heads.PatchAttention.maps": [("x", lambda f: f(patches(), ones(4, 5)))],
    "equivariance.heads.PatchAttention.forward": [("x", lambda f: f(patches(), ones(4, 5)))],
    "equivariance.heads.feature_action": [
        ("axis", lambda f: f(patches(), "sideways")),
        ("of", lambda f: f(patches(), of="tokens")),
    ],
    "equivariance.heads.match": [("axis", lambda f: f(patches(), "sideways"))],
    "equivariance.heads.positions_error": [
        ("axis", lambda f: f(patches(), "sideways")),
        ("of", lambda f: f(patches(), of="")),
    ],
    "equivariance.heads.untrained_patch_attention": [("d_v", lambda f: f(4, 4, 3, 2, 2, 0, generator=g()))],
    "equivariance.heads.visible_positions_error": [("axis", lambda f: f(patches(), "sideways"))],
    "equivariance.identifiable.exact_tanh": [("y", lambda f: f(1, Fraction(1), 0))],
    "equivariance.identifiable.first_pole": [("slope", lambda f: f(0.0, 1.0))],
    "equivariance.identifiable.harmless_turns": [("x", lambda f: f(deep(2, 3, 2), ones(4, 3)))],
    "equivariance.identifiable.irreducible": [
        ("network", lambda f: f(deep())),
        ("tolerance", lambda f: f(deep(2, 3, 2), NAN)),
    ],
    "equivariance.identifiable.random_legible": [("units", lambda f: f(0, generator=g()))],
    "equivariance.identifiable.random_shallow": [
        ("activation", lambda f: f("ReLU", 2, generator=g())),
        ("units", lambda f: f("relu", 0, generator=g())),
        ("sizes", lambda f: f("relu", 2, (2, -1), generator=g())),
    ],
    "equivariance.identifiable.read_network": [("units", lambda f: f(torch.tanh, 1, 0))],
    "equivariance.identifiable.read_units": [("count", lambda f: f(np.ones(3), np.ones(3), 0))],
    "equivariance.identifiable.residue": [
        ("points", lambda f: f(np.tanh, 1j, 1.0, 0)),
        ("radius", lambda f: f(np.tanh, 1j, NAN)),
    ],
    "equivariance.identifiable.spare_unit_pair": [("kind", lambda f: f("twin", generator=g()))],
    "equivariance.identifiable.turned": [
        ("units", lambda f: f(deep(2, 3, 2), [3])),
        ("units", lambda f: f(deep(2, 3, 2), [True])),
        ("units", lambda f: f(deep(2, 3, 2), [1, 1])),
    ],
    "equivariance.identifiable.value_matrix": [("scales", lambda f: f([1, 2], [Fraction(1)]))],
    "equivariance.identifiable.vanishing_sets": [("tolerance", lambda f: f(deep(2, 3, 2), NAN))],
    "equivariance.identifiable.with_vanishing_sum": [("units", lambda f: f(deep(2, 3, 2), [0]))],
    "equivariance.images.from_patches": [
        ("columns", lambda f: f(ones(4, 4), 3)),
        ("tokens", lambda f: f(ones(4, 5), 2)),
    ],
    "equivariance.images.mirror_on_tokens": [
        ("tokens", lambda f: f(3, 4)),
        ("axis", lambda f: f(4, 4, "sideways")),
        ("n", lambda f: f(4, -1)),
    ],
    "equivariance.images.mirrored": [
        ("shape", lambda f: f(ones(4), (1, 2, 3))),
        ("axis", lambda f: f(ones(4), (1, 2, 2), "sideways")),
    ],
    "equivariance.images.mirrored_tokens": [
        ("axis", lambda f: f(ones(4, 4), "sideways")),
        ("tokens", lambda f: f(ones(3, 4))),
    ],
    "equivariance.images.to_patches": [
        ("size", lambda f: f(ones(4, 4), 3)),
        ("size", lambda f: f(ones(4, 4), 0)),
    ],
    "equivariance.layerwise.equivariance_error": [
        ("x", lambda f: f(deep(), swap(), swap(), ones(5, 3))),
        ("x", lambda f: f(deep(), swap(), swap(), ones(0, 2))),
        ("rho_out", lambda f: f(deep(), swap(), swap(3), ones(5, 2))),
        ("f", lambda f: f(lambda x: 1.0, swap(), swap(), ones(5, 2))),
        ("rho_out", lambda f: f(deep(), swap(), groups.trivial(groups.cyclic(3), 2), ones(5, 2))),
    ],
    "equivariance.layerwise.latent_actions": [
        ("rho_in", lambda f: f(deep(), swap(3), swap())),
        ("rho_out", lambda f: f(deep(), swap(), swap(3))),
        ("tolerance", lambda f: f(deep(), swap(), swap(), tolerance=NAN)),
        ("tolerance", lambda f: f(deep(), swap(), swap(), tolerance=0)),
    ],
    "equivariance.layerwise.layer_errors": [
        ("representations", lambda f: f(deep(2, 2), [swap()], generator=g())),
        ("representations", lambda f: f(deep(2, 2), [swap(), swap(3)], generator=g())),
        ("count", lambda f: f(deep(2, 2), [swap(), swap()], generator=g(), count=0)),
    ],
    "equivariance.layerwise.least_squares_action": [("moved", lambda f: f(ones(5, 2), ones(4, 2)))],
    "equivariance.layerwise.symmetrise": [
        ("representations", lambda f: f(deep(2, 2), [])),
        ("representations", lambda f: f(deep(2, 2), [swap(), swap(3)])),
    ],
    "equivariance.layerwise.transport": [
        ("a", lambda f: f(deep(), eye(3), eye(2))),
        ("b", lambda f: f(deep(), eye(2), eye(3))),
    ],
    "equivariance.layerwise.worst_violation": [("x", lambda f: f(deep(), swap(), swap(), ones(5, 3)))],
    "equivariance.mlp.invertible_integer_matrices": [
        ("n", lambda f: f(0, 1)),
        ("largest", lambda f: f(2, -1)),
    ],
    "equivariance.model.carelessly_moved": [
        ("k", lambda f: f(deep(), eye(2))),
        ("k", lambda f: f(deep(2, 2), eye(2))),
    ],
    "equivariance.model.end_to_end_gap": [("x", lambda f: f([torch.relu], [torch.relu], ones(0, 2)))],
    "equivariance.model.layer_gap": [
        ("moved", lambda f: f([torch.relu], [], [torch.abs] * 2, [ones(2)])),
        ("k", lambda f: f([torch.relu], [torch.relu], [torch.abs], [ones(2)])),
        ("points", lambda f: f([torch.relu], [torch.relu], [torch.abs] * 2, [])),
    ],
    "equivariance.planted.equivariant_network": [("depth", lambda f: f(groups.cyclic(2), 0, generator=g()))],
    "equivariance.planted.random_deep": [
        ("sizes", lambda f: f("relu", (3,), generator=g())),
        ("sizes", lambda f: f("relu", (3, 0, 2), generator=g())),
    ],
    "equivariance.planted.with_spare_units": [
        ("kinds", lambda f: f(deep(), ["twin"], generator=g())),
        ("layers", lambda f: f(deep(), layers=[7], generator=g())),
    ],
    "equivariance.planted_attention.reflection": [("d", lambda f: f(0))],
    "equivariance.planted_heads.memory": [("columns", lambda f: f(0, 4, generator=g()))],
    "equivariance.planted_heads.odd_heads": [("strength", lambda f: f(NAN, generator=g()))],
    "equivariance.planted_heads.plant": [
        ("columns", lambda f: f(groups.cyclic(2), 0, 3, 2, swap(), generator=g()))
    ],
    "equivariance.planted_heads.positions_only": [("columns", lambda f: f(0, 4, generator=g()))],
    "equivariance.planted_heads.sum_of_sigmoids": [
        ("a must", lambda f: f(patches(), ones(4, 4), ones(4), 0, ones(2))),
        ("a must", lambda f: f(patches(), ones(4, 4), ones(4), 4, ones(2))),
    ],
    "equivariance.redundancy.drop": [
        ("layer", lambda f: f(deep(), 3, 0)),
        ("unit", lambda f: f(deep(), 1, 3)),
        ("unit", lambda f: f(deep(), 1, -1)),
    ],
    "equivariance.redundancy.fold": [
        ("layer", lambda f: f(deep(), 0, 0)),
        ("unit", lambda f: f(deep(), 1, 9)),
    ],
    "equivariance.redundancy.merge": [
        ("into", lambda f: f(deep(), 1, 0, 0)),
        ("unit", lambda f: f(deep(), 1, 7, 0)),
        ("factor", lambda f: f(deep(), 1, 0, 1, NAN)),
    ],
    "equivariance.submodels.anywhere": [("count", lambda f: f(deep(), -1, generator=g()))],
    "equivariance.submodels.available_moves": [("tolerance", lambda f: f(deep(), NAN))],
    "equivariance.submodels.insert_clone": [
        ("layer", lambda f: f(deep(), 3, 0, ones(2))),
        ("into", lambda f: f(deep(), 1, 3, ones(3))),
        ("column", lambda f: f(deep(), 1, 0, ones(2))),
        ("factor", lambda f: f(deep(), 1, 0, ones(3), factor=NAN)),
    ],
    "equivariance.submodels.occurring": [("x", lambda f: f(deep(), ones(4, 3)))],
    "equivariance.submodels.square_gaps": [
        ("project", lambda f: f(deep(2, 3, 2), deep(2, 2, 2), [eye(3)], [ones(4, 2), ones(4, 3)])),
        ("points", lambda f: f(deep(2, 3, 2), deep(2, 3, 2), [eye(3)], [ones(4, 2)])),
    ],
    "equivariance.submodels.two_opposite_pairs": [("activation", lambda f: f("ReLU"))],
    "experiments.data.Images": [
        ("pixels", lambda f: data.Images("x", ones(1, 1, 2, 2) * 2)),
        ("pixels", lambda f: data.Images("x", ones(1, 1, 2, 2) * NAN)),
        ("pixels", lambda f: data.Images("x", ones(0, 1, 2, 2))),
        ("pixels", lambda f: data.Images("x", ones(1, 1, 2, 2, dtype=torch.float32))),
        ("labels", lambda f: data.Images("x", ones(1, 1, 2, 2), torch.tensor([-1]))),
        ("labels", lambda f: data.Images("x", ones(1, 1, 2, 2), torch.tensor([1, 1]))),
    ],
    "experiments.data.natural_patches": [
        ("scales", lambda f: f(1, scales=(), generator=g())),
        ("scales", lambda f: f(1, scales=(1, 0), generator=g())),
        ("size", lambda f: f(1, 10**4, generator=g())),
        ("photographs", lambda f: f(1, photographs=[], generator=g())),
        ("name", lambda f: f(1, photographs=["eagle"], generator=g())),
    ],
    "experiments.data.photograph": [("name", lambda f: f("eagle")), ("name", lambda f: f(""))],
    "experiments.mirror_attention.Setting": [
        ("columns", lambda f: mirror_attention.Setting(columns=5)),
        ("heads", lambda f: mirror_attention.Setting(heads=0)),
        ("seed", lambda f: mirror_attention.Setting(seed=1.5)),
    ],
    "experiments.mirror_attention.end_to_end": [("axis", lambda f: f(patches(), ones(2, 4, 4), "sideways"))],
    "experiments.mirror_attention.mirror_loss": [
        ("x", lambda f: f(ones(0, 16, 9), mirror_attention.Setting(steps=2)))
    ],
    "experiments.mirror_attention.photographs": [
        ("columns", lambda f: f(5, 2)),
        ("columns", lambda f: f(0, 2)),
    ],
    "experiments.mirror_attention.run": [
        (
            "measure_at",
            lambda f: f(ones(2, 16, 9), mirror_attention.Setting(steps=2), measure_at=(3,), progress=False),
        ),
    ],
    "experiments.mirror_mlp.Setting": [
        ("activation", lambda f: mirror_mlp.Setting(activation="x")),
        ("steps", lambda f: mirror_mlp.Setting(steps=2.5)),
        ("learning_rate", lambda f: mirror_mlp.Setting(learning_rate=-1)),
        ("task", lambda f: mirror_mlp.Setting(task="segmentation")),
        ("mirror_from", lambda f: mirror_mlp.Setting(mirror_from=NAN)),
    ],
    "experiments.mirror_mlp.bundled": [("task", lambda f: f("segmentation"))],
    "experiments.mirror_mlp.errors": [
        ("shape", lambda f: f(deep(4, 2), (1, 3, 2))),
        ("samples", lambda f: f(deep(4, 2), (1, 2, 2), samples=0)),
    ],
    "experiments.mirror_mlp.fit_layers": [
        ("shape", lambda f: f(deep(4, 2), (1, 3, 2))),
        ("samples", lambda f: f(deep(4, 2), (1, 2, 2), samples=0)),
        ("axis", lambda f: f(deep(4, 2), (1, 2, 2), "sideways")),
        ("noise_scale", lambda f: f(deep(4, 2), (1, 2, 2), noise_scale=0)),
    ],
    "experiments.mirror_mlp.mirror_symmetry": [
        ("axis", lambda f: f(deep(4, 3, 2), (1, 2, 2), "sideways")),
        ("shape", lambda f: f(deep(4, 3, 2), (1, 1, 2))),
    ],
    "experiments.mirror_mlp.outcome": [("shape", lambda f: f(deep(4, 3, 2), training.Record(), (1, 1, 2)))],
    "experiments.mirror_mlp.run": [
        ("measure_at", lambda f: f(images(), mirror_mlp.Setting(steps=2), measure_at=(3,), progress=False)),
    ],
    "experiments.mirror_mlp.units": [
        ("axis", lambda f: f(deep(4, 3, 2), (1, 2, 2), "sideways")),
        ("shape", lambda f: f(deep(4, 3, 2), (1, 1, 2))),
    ],
    "experiments.mirror_mlp.untrained": [
        ("images", lambda f: f(data.Images("x", ones(1, 1, 2, 2)), mirror_mlp.Setting(task="classifier"))),
    ],
    "experiments.records.recorded": [
        ("experiment", lambda f: f("head", "all")),
        ("variant", lambda f: f("mirror", "no such variant")),
        ("setting", lambda f: f("mirror", mirror_variant(), depth=3)),
        ("activation", lambda f: f("mirror", mirror_variant(), activation="x")),
    ],
    "experiments.records.results": [("experiment", lambda f: f("../mirror"))],
    "experiments.training.OneCycle": [
        ("learning_rate", lambda f: training.OneCycle(5, learning_rate=0)),
        ("steps", lambda f: training.OneCycle(0)),
    ],
    "experiments.training.train": [
        ("measure_at", lambda f: trained(measure_at=[3])),
        ("measure_at", lambda f: trained(measure_at=np.array([0.5]))),
        ("network", lambda f: f(torch.nn.Tanh(), max, training.OneCycle(2), seed=0)),
        (
            "loss",
            lambda f: f(
                DeepMLP([eye(2).requires_grad_()]), lambda *_: 1.0, training.OneCycle(2), seed=0, bar=None
            ),
        ),
    ],
    "functions.gap": [
        ("x", lambda f: f(torch.relu, torch.relu, ones(0, 3))),
        ("f", lambda f: f(lambda x: 3.0, torch.relu, ones(3))),
        ("g", lambda f: f(torch.relu, lambda x: x.numpy(), ones(3))),
        ("g", lambda f: f(torch.relu, lambda x: x[0], ones(3))),
    ],
    "networks.MLP": [
        ("down", lambda f: MLP(ones(3, 2), ones(2, 4))),
        ("up_bias", lambda f: MLP(ones(3, 2), ones(2, 3), up_bias=ones(2))),
        ("up", lambda f: MLP(ones(3, 2) * NAN, ones(2, 3))),
        ("up", lambda f: MLP(ones(0, 2), ones(2, 0))),
        ("down", lambda f: MLP(ones(3, 2), ones(2, 3, dtype=torch.float32))),
        ("activation", lambda f: MLP(ones(3, 2), ones(2, 3), "ReLU")),
        ("up", lambda f: MLP(ones(3, 2, device="meta"), ones(2, 3))),
        ("up", lambda f: MLP(ones(3, 2).requires_grad_() * 2, ones(2, 3))),
    ],
    "networks.MLP.forward": [
        ("x", lambda f: f(block(), ones(3))),
        ("x", lambda f: f(block(), ones(()))),
        ("x", lambda f: f(block(), np.ones(2))),
        ("x", lambda f: f(block(), ones(2, dtype=torch.float32))),
        ("x", lambda f: f(block(), ones(2, dtype=torch.complex128))),
        ("x", lambda f: f(block(), [1.0, 2.0])),
    ],
    "networks.GatedMLP": [
        ("up", lambda f: GatedMLP(ones(3, 2), ones(4, 2), ones(2, 3))),
        ("gate_bias", lambda f: GatedMLP(ones(3, 2), ones(3, 2), ones(2, 3), gate_bias=ones(3) * INF)),
    ],
    "networks.GatedMLP.forward": [
        ("x", lambda f: f(gated(), ones(4, 3))),
        ("x", lambda f: f(gated(), ones(2, dtype=torch.bfloat16))),
    ],
    "networks.Residual": [
        ("block", lambda f: Residual(MLP(ones(3, 2), ones(4, 3)))),
        ("block", lambda f: Residual(residual())),
        ("skip", lambda f: Residual(block(), eye(3))),
        ("skip", lambda f: Residual(block(), eye(2) * NAN)),
        ("skip", lambda f: Residual(skip=ones(2), block=block())),
    ],
    "networks.Residual.forward": [
        ("x", lambda f: f(residual(), ones(3))),
        ("x", lambda f: f(residual(), ones(2, dtype=torch.float32))),
    ],
    "networks.Stack": [
        ("blocks", lambda f: Stack([])),
        ("blocks", lambda f: Stack([block(), block(3)])),
        ("blocks", lambda f: Stack(iter([block(), torch.nn.Tanh()]))),
        ("blocks", lambda f: Stack([block(), "block"])),
    ],
    "networks.Stack.forward": [("x", lambda f: f(Stack([block()]), ones(3)))],
    "networks.DeepMLP": [
        ("weights", lambda f: DeepMLP([])),
        ("weights", lambda f: DeepMLP([eye(2), eye(3)])),
        ("weights", lambda f: DeepMLP([eye(2), ones(2)])),
        ("weights", lambda f: DeepMLP([eye(2), eye(2, dtype=torch.float32)])),
        ("biases", lambda f: DeepMLP([eye(2)], [])),
        ("biases", lambda f: DeepMLP([eye(2)], [ones(3)])),
        ("activation", lambda f: DeepMLP([eye(2)], activation=["relu"])),
        ("activation", lambda f: DeepMLP([eye(2)] * 2, activation="ReLU")),
    ],
    "networks.DeepMLP.forward": [
        ("x", lambda f: f(deep(), ones(3))),
        ("x", lambda f: f(deep(), ones(2, dtype=torch.float32))),
    ],
    "networks.DeepMLP.layer": [
        ("i", lambda f: f(deep(), 0, ones(2))),
        ("i", lambda f: f(deep(), 4, ones(2))),
        ("y", lambda f: f(deep(), 1, ones(3))),
        ("y", lambda f: f(deep(), 1, ones(()))),
    ],
    "networks.Layers.replaced": [
        ("i", lambda f: f(deep().layers, 3, eye(2))),
        ("i", lambda f: f(deep().layers, -1, eye(2))),
    ],
    "networks.Layers.rows": [("i", lambda f: f(deep().layers, 3)), ("i", lambda f: f(deep().layers, -1))],
    "networks.checked_weights": [("w", lambda f: f("w", ones(2), 3)), ("w", lambda f: f("w", ones(2) / 0))],
    "networks.hyper_connection": [
        ("mixing", lambda f: f(ones(2, 3), 2)),
        ("mixing", lambda f: f(ones(2, 2) * NAN, 2)),
        ("d", lambda f: f(eye(2), 0)),
    ],
    "networks.random_gated_mlp": [("m", lambda f: f(2, 0, generator=g())), ("generator", lambda f: f(2, 3))],
    "networks.random_mlp": [
        ("d", lambda f: f(2.5, 3, generator=g())),
        ("generator", lambda f: f(2, 3)),
        ("generator", lambda f: f(2, 3, generator=None)),
        ("activation", lambda f: f(2, 3, "ReLU", generator=g())),
    ],
    "networks.require_same_kind": [("down", lambda f: f(up=ones(2), down=ones(2, dtype=torch.float32)))],
    "pages.checks.agree": [
        ("right", lambda f: f("x", ones(2), ones(3), atol=1.0)),
        ("atol", lambda f: f("x", ones(2), ones(2), atol=-1.0)),
    ],
    "pages.live.turn": [
        ("residual", lambda f: f(Residual(random_mlp(3, 4, generator=g())), scripts="s")),
        ("size", lambda f: f(Residual(random_mlp(2, 4, generator=g())), scripts="s", size=0)),
    ],
    "pages.live.line": [("weights", lambda f: f([1.0], [1.0, 2.0], scripts="s"))],
    "pages.live.filter": [
        ("image", lambda f: f(ones(2, 3), ones(3, 3), names=["g"] * 8, scripts="s")),
        ("kernel", lambda f: f(ones(2, 2), ones(2, 2), names=["g"] * 8, scripts="s")),
        ("names", lambda f: f(ones(2, 2), ones(3, 3), names=["g"], scripts="s")),
    ],
    "pages.display.reading_map": [
        ("parts", lambda f: f({"Part": [Stop("b.html", "Two", "so", needs=("One",))]})),
    ],
    "pages.figures.figure": [
        ("columns", lambda f: f(0)),
        ("width", lambda f: f(width=-1)),
        ("height", lambda f: f(height=NAN)),
    ],
    "pages.figures.frame_slider": [
        ("frames", lambda f: f([], [], "n", alt="")),
        ("values", lambda f: f(pictures(2), [1], "n", alt="")),
        ("start", lambda f: f(pictures(2), [1, 2], "n", alt="", start=2)),
        ("start", lambda f: f(pictures(2), [1, 2], "n", alt="", start=-1)),
    ],
    "pretrained.feed_forward": [
        ("layers", lambda f: f(layers=0)),
        ("path", lambda f: f(HOME)),
        ("safetensors", lambda f: f(__file__)),
    ],
    "pretrained.input_norms": [("layers", lambda f: f(layers=-1)), ("path", lambda f: f(str(HOME)))],
    "pretrained.checked": [("SHA-256", lambda f: f(Path(__file__), "0"))],
    "pretrained.random_twin": [("residual", lambda f: f(Residual(gated()), generator=g()))],
    "skip.absorption.absorb": [
        ("residual", lambda f: f(block())),
        ("residual", lambda f: f(Stack([residual()]))),
    ],
    "skip.absorption.flip": [
        ("units", lambda f: f(block(), (3,))),
        ("units", lambda f: f(block(), (-1,))),
        ("units", lambda f: f(block(), (1, 1))),
        ("units", lambda f: f(block(), (1.5,))),
        ("units", lambda f: f(block(), (True, False, True))),
        ("units", lambda f: f(block(), torch.tensor([True, False, True]))),
        ("units", lambda f: f(block(), iter([0.5]))),
    ],
    "skip.collect.equivalent": [("up_to", lambda f: f(ones(2, 2), "scale"))],
    "skip.criterion.certified_bound": [
        ("y", lambda f: f(residual(), ones(2, 2, dtype=torch.complex128))),
        ("y", lambda f: f(residual(), ones(3, 2))),
        ("y", lambda f: f(residual(), ones(2, 2) * NAN)),
        ("y", lambda f: f(residual(), ones(0, 0))),
    ],
    "skip.criterion.positive_factor": [("terms", lambda f: f(eye(2), 0))],
    "skip.criterion.probe": [("n", lambda f: f(0))],
    "skip.criterion.require_units": [
        ("units", lambda f: f(block(), [3])),
        ("units", lambda f: f(block(), [True])),
    ],
    "skip.criterion.subset_distances": [("residual", lambda f: f(Residual(block(2, 40))))],
    "skip.depth.absorbing_stack": [
        ("kind", lambda f: f(["x"], 2, generator=g())),
        ("d", lambda f: f(["relu block"], 0, generator=g())),
    ],
    "skip.depth.random_block": [
        ("kind", lambda f: f("x", 2, 3, generator=g())),
        ("d", lambda f: f("tanh", 0, 3, generator=g())),
    ],
    "skip.depth.random_stacks": [
        ("kinds", lambda f: f([], 2, generator=g())),
        ("d", lambda f: f(["tanh"], 0, generator=g())),
    ],
    "skip.depth.remainders_at_infinity": [("block", lambda f: f(Stack([block()])))],
    "skip.families.verdicts": [
        ("d", lambda f: f(0, generator=g())),
        ("m", lambda f: f(2, -1, generator=g())),
    ],
    "skip.gated.biased_pair": [
        ("bias", lambda f: f(eye(2), torch.zeros(2))),
        ("bias", lambda f: f(eye(2), ones(3))),
    ],
    "skip.gated.nearest_to_the_skip": [("m", lambda f: f("silu", 3)), ("m", lambda f: f("silu", 0))],
    "skip.gated.quadratic_constant": [("block", lambda f: f(GatedMLP(*[eye(2)] * 3, gate_bias=ones(2))))],
    "skip.gated.slope_at_zero": [
        ("radii", lambda f: f(gated(), ones(2), ones(1))),
        ("radii", lambda f: f(gated(), ones(2), -ones(2))),
        ("direction", lambda f: f(gated(), torch.zeros(2), torch.tensor([0.1, 0.2]))),
    ],
    "skip.generic.absorbing_on_grid": [("l", lambda f: f(0))],
    "skip.generic.mean_length": [("d", lambda f: f(0))],
    "skip.generic.negative_overlap": [("down", lambda f: f(ones(3, 2), ones(2, 4)))],
    "skip.generic.orthonormal_mlp": [
        ("m", lambda f: f(3, 2, generator=g())),
        ("d", lambda f: f(0, 2, generator=g())),
    ],
    "skip.generic.uniform_mlp": [
        ("d", lambda f: f(0, 2, generator=g(), scale=1.0)),
        ("scale", lambda f: f(2, 2, generator=g(), scale=NAN)),
    ],
    "skip.homogeneous.best_on_ray": [("degree", lambda f: f(0.0)), ("degree", lambda f: f(NAN))],
    "skip.homogeneous.biased_pair": [("basis", lambda f: f(ones(2, 2)))],
    "skip.homogeneous.disc_fit": [
        ("activation", lambda f: f("gelu", 3)),
        ("m", lambda f: f("relu", 0)),
        ("turn", lambda f: f("relu", 3, NAN)),
    ],
    "skip.homogeneous.identity_with_biases": [("d", lambda f: f(0))],
    "skip.homogeneous.two_radii_bound": [
        ("r", lambda f: f(2.0, 2.0, 1.0)),
        ("degree", lambda f: f(NAN, 1.0, 2.0)),
    ],
    "skip.planted.plant": [
        ("units", lambda f: f(block(), (0, 0, 1))),
        ("units", lambda f: f(block(), ())),
        ("units", lambda f: f(block(), (1.5,))),
        ("skip", lambda f: f(block(), (0, 1), eye(3))),
        ("skip", lambda f: f(block(), (0, 1), eye(2) * NAN)),
    ],
    "skip.planted.running_example": [("moved", lambda f: f(NAN))],
    "skip.planted.spare_unit_block": [
        ("kind", lambda f: f("twin", generator=g())),
        ("activation", lambda f: f("dead unit", "tanh", generator=g())),
    ],
    "skip.planted.subsets_that_work": [("tolerance", lambda f: f(residual(), NAN))],
    "skip.width.minimal_width": [("residual", lambda f: f(Residual(gated())))],
    "skip.width.realise": [("spare", lambda f: f(collect.collect(residual()), -1))],
}


def mirror_variant():
    return records._parsed("mirror")[0]["variant"]


def pictures(count):
    return [figure()[0] for _ in range(count)]


# What takes numbers, names or sequences, and yet no value of these types that could be wrong.
ANY_WILL_DO = {
    "what the library makes and others read": {
        "claims.Check", "claims.Claim", "claims.Report", "claims.Result", "equivariance.attention.HeadAction",
        "equivariance.finite_examples.Example", "equivariance.layerwise.LatentAction",
        "equivariance.planted_heads.Recovered",
        "equivariance.redundancy.Reduced", "experiments.mirror_mlp.LayerFit", "experiments.training.Record",
        "networks.Layers", "skip.absorption.Absorption", "skip.absorption.Rule", "skip.collect.Collected",
        "skip.criterion.Criterion", "skip.criterion.Criterion.unscaled", "skip.deviation.Deviation",
        "skip.criterion.Refuted", "skip.depth.Kind", "skip.families.Family",
        "skip.width.Realisation",
    },
    "any text": {
        "claims.Claim.certificate", "claims.Claim.control", "claims.Claim.exact", "claims.Claim.numeric",
        "claims.require", "equivariance.groups.group", "pages.display.table", "pages.display.typeset",
        "pages.glue.glue", "pages.checks.holds", "pages.checks.checked", "pages.checks.scientific",
        "pages.contents.contents", "pages.contents.Chapter", "pages.contents.Exercise",
        "pages.display.Stop", "pages.figures.FrameSlider",
        "experiments.records.write",
    },
    "a seed of any size: it is hashed": {"claims.Check.run", "claims.ledger.ledger"},
    "called millions of times: types are checked, sizes are not": {
        "equivariance.finite.DeepModel.relating", "equivariance.finite.equivariant",
        "equivariance.finite.function", "equivariance.finite.transport",
    },
    "any composition, the empty one too": {"equivariance.model.sequential"},
    "arithmetic on any numbers": {
        "equivariance.units.gaps", "skip.criterion.exponents", "skip.criterion.ldexp",
    },
    "membership is what it is asked": {"equivariance.finite.Submodel.weakly_identifiable"},
    "made from what is checked where it is made": {
        "equivariance.finite_examples.Example.actions", "equivariance.finite_examples.census",
        "equivariance.finite_examples.smallest_model", "equivariance.finite_examples.total",
        "equivariance.groups.Group.inverse", "equivariance.groups.Group.product",
        "equivariance.groups.cycles",
    },
}  # fmt: skip
NUMBERS_AND_NAMES = re.compile(
    r"\b(int|float|str|Sequence|Iterable|Collection|tuple|list|dict|Mapping|Parameter|FiniteMap|FiniteAction|Permutation|Path)\b|{"
)


def test_what_types_cannot_say_is_in_the_table():
    """So that a new function with numbers or names meets the question of what these may be."""
    asked = {
        name
        for name, function in PUBLIC.items()
        for annotation in annotated(function).values()
        if "Callable" not in annotation
        and NUMBERS_AND_NAMES.search(annotation.replace("str | Activation", ""))
    }
    excused = set().union(*ANY_WILL_DO.values())
    assert asked - WRONG.keys() - excused - UNCHECKED == set()
    assert WRONG.keys() | excused <= PUBLIC.keys() and not WRONG.keys() & excused


ROWS = [(name, i) for name in WRONG for i in range(len(WRONG[name]))]


@pytest.mark.parametrize("name, i", ROWS)
def test_a_wrong_value_is_named(name, i):
    argument, call = WRONG[name][i]
    with pytest.raises((TypeError, ValueError), match=rf"\b{re.escape(argument)}\b") as error:
        call(PUBLIC[name])
    if "missing 1 required" not in str(error.value):  # Python's own words
        where = traceback.extract_tb(error.value.__traceback__)[-1].filename
        assert HOME in Path(where).parents, where
