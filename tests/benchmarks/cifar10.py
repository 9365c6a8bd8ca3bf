"""CIFAR-10 from the files of its python format, for ``mirror.py`` to train on.

The files are pickles from elsewhere: nothing in them is executed.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from samefn.experiments.data import Images

CIFAR10_FILES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}


# an array pickles itself by these functions, up to protocol 4 and in 5; both only make arrays, and the module
# that has them has changed its name since CIFAR-10 was made
NUMPY = {
    "_reconstruct": np.empty(0).__reduce__()[0],
    "_frombuffer": np.empty(0).__reduce_ex__(5)[0],
    "ndarray": np.ndarray,
    "dtype": np.dtype,
}


class _ArraysOnly(pickle.Unpickler):
    """Pickles can run any code; those of CIFAR-10 need only NumPy arrays and bytes."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in NUMPY:
            return NUMPY[name]
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no file of CIFAR-10 does")


def cifar10(folder: str | Path, split: str = "train") -> Images:
    """CIFAR-10 from a local folder ``cifar-10-batches-py``: 32 × 32 pixels, three channels.

    Each of the files data_batch_1 … data_batch_5 (``split="train"``) or test_batch ("test") is a
    pickled dictionary with ``data``, uint8 of shape (n, 3072), and ``labels``, n integers from 0 to 9.
    Nothing in them is executed.  Raises FileNotFoundError saying where to get the files if they are
    not there, ValueError for a file of another format or an unknown split.
    """
    if split not in CIFAR10_FILES:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    folder = Path(folder)
    missing = [name for name in CIFAR10_FILES[split] if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"folder {folder} has no {', '.join(missing)}. Download cifar-10-python.tar.gz from "
            "https://www.cs.toronto.edu/~kriz/cifar.html, unpack it, and pass the path of its folder "
            "cifar-10-batches-py"
        )
    batches = [_batch(folder / name) for name in CIFAR10_FILES[split]]
    pixels, labels = (torch.cat(parts) for parts in zip(*batches))
    return Images(f"CIFAR-10, {split}", pixels, labels)


def _batch(path: Path) -> tuple[Float[Tensor, "n 3 32 32"], Int[Tensor, "n"]]:
    fields = _fields(path)
    data, labels = fields["data"], np.asarray(fields["labels"], dtype=object)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        got = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise ValueError(f"data of {path} must be uint8 of shape (n, 3072), got {got}")
    odd = [label for label in labels.flat if not (isinstance(label, int) and 0 <= label < 10)]
    if labels.shape != data.shape[:1] or odd:
        raise ValueError(
            f"labels of {path} must be {len(data)} integers from 0 to 9, got shape {labels.shape}"
            + (f" with {odd[0]!r}" if odd else "")
        )
    pixels = torch.from_numpy(np.array(data).reshape(-1, 3, 32, 32)).to(torch.float64) / 255
    return pixels, torch.from_numpy(labels.astype(np.int64))


def _fields(path: Path) -> dict[Any, Any]:
    """The dictionary of a batch, which has ``data`` and ``labels``, of whatever kind."""
    try:
        batch = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise almost any; the cause is kept
        raise ValueError(f"{path} is not a batch of CIFAR-10 in its python format: {error}") from error
    if not isinstance(batch, dict):
        raise ValueError(f"{path} must hold a dictionary, got {type(batch).__name__}")
    # bytes for keys in the published files, str in files that Python 3 wrote
    fields = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    for key in ("data", "labels"):
        if key not in fields:
            raise ValueError(f"{path} must hold {key!r}, got the keys {sorted(map(str, fields))}")
    return fields
