"""Real images, all in one form: patches of photographs, handwritten digits, CIFAR-10.

The first two travel with scikit-image and scikit-learn and need no download.
"""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size: ``pixels`` (n, channels, height, width), float64 in [0, 1]; ``labels`` (n,), int64 from 0, or None.

    Raises TypeError or ValueError, naming the argument, for anything else.
    """

    name: str
    pixels: Float[Tensor, "n channels height width"]
    labels: Int[Tensor, "n"] | None = None

    def __post_init__(self) -> None:
        _require("pixels", self.pixels, torch.float64)
        if self.pixels.dim() != 4 or self.pixels.numel() == 0:
            raise ValueError(f"pixels must have shape (n, channels, height, width), none 0, got {tuple(self.pixels.shape)}")
        if not (self.pixels.min() >= 0 and self.pixels.max() <= 1):
            raise ValueError(f"pixels must lie in [0, 1], got values from {self.pixels.min():g} to {self.pixels.max():g}")
        if self.labels is not None:
            _require("labels", self.labels, torch.int64)
            if self.labels.shape != self.pixels.shape[:1]:
                raise ValueError(f"labels must have shape ({len(self)},), got {tuple(self.labels.shape)}")
            if self.labels.min() < 0:
                raise ValueError(f"labels must be at least 0, got {self.labels.min()}")

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return tuple(self.pixels.shape[1:])

    def vectors(self) -> Float[Tensor, "n d"]:
        """The images as vectors, d = channels · height · width, shifted and scaled to mean 0 and variance 1 over all entries.

        Raises ValueError if all pixels are equal.
        """
        flat = self.pixels.flatten(1)
        if flat.min() == flat.max():  # rounding can leave equal numbers a deviation above 0
            raise ValueError(f"pixels of {self.name} are all equal and cannot be scaled to variance 1")
        return (flat - flat.mean()) / flat.std()


def _require(name: str, value: object, dtype: torch.dtype) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.dtype != dtype:
        raise TypeError(f"{name} must have dtype {dtype}, got {value.dtype}")


# The photographs, where they come from, and their licences.
PHOTOGRAPHS = {
    "astronaut": ("scikit-image", "NASA", "public domain"),
    "brick": ("scikit-image", "CC0Textures", "CC0"),
    "camera": ("scikit-image", "Lav Varshney", "CC0"),
    "cat": ("scikit-image", "Stefan van der Walt", "CC0"),
    "coffee": ("scikit-image", "Rachel Michetti", "CC0"),
    "grass": ("scikit-image", "linolafett", "CC0"),
    "gravel": ("scikit-image", "CC0Textures", "CC0"),
    "rocket": ("scikit-image", "SpaceX", "public domain"),
    "china.jpg": ("scikit-learn", "danielbuechele", "CC BY 2.0"),
    "flower.jpg": ("scikit-learn", "vultilion", "CC BY 2.0"),
}


def photograph(name: str) -> Float[Tensor, "channels height width"]:
    """One of :data:`PHOTOGRAPHS`, one (grey) or three (red, green, blue) channels between 0 and 1.

    Raises ValueError for any other name.
    """
    if name not in PHOTOGRAPHS:
        raise ValueError(f"name must be one of {', '.join(PHOTOGRAPHS)}, got {name!r}")
    if PHOTOGRAPHS[name][0] == "scikit-image":
        from skimage import data

        image = getattr(data, name)()
    else:
        from sklearn.datasets import load_sample_image

        image = load_sample_image(name)
    image = torch.from_numpy(np.array(image)).to(torch.float64) / 255
    return image[None] if image.dim() == 2 else image.permute(2, 0, 1).contiguous()


def natural_patches(
    count: int,
    size: int = 12,
    *,
    scales: Sequence[int] = (1, 2, 4),
    colour: bool = False,
    photographs: Sequence[str] | None = None,
    generator: torch.Generator,
) -> Images:
    """``count`` square patches of ``size`` pixels from the bundled photographs, each reduced by each of ``scales``.

    A photograph reduced by s holds the means of s × s blocks.  Photograph, scale and place are drawn
    uniformly.  Grey values are luma (the weights of ITU-R BT.709); with ``colour``, only photographs that
    have colour are used.  ``photographs`` restricts them by name (see :data:`PHOTOGRAPHS`), for
    instance to keep some for testing.  Raises ValueError for sizes below 1, no photograph, or a patch larger
    than a reduced photograph.
    """
    if count < 1 or size < 1 or not scales or min(scales) < 1:
        raise ValueError(f"count, size and scales must be at least 1, got {count}, {size} and {tuple(scales)}")
    whole = {name: photograph(name) for name in (PHOTOGRAPHS if photographs is None else photographs)}
    if colour:
        whole = {name: image for name, image in whole.items() if len(image) == 3}
    else:
        luminance = torch.tensor([0.2126, 0.7152, 0.0722], dtype=torch.float64)
        whole = {
            name: image if len(image) == 1 else torch.einsum("c,chw->hw", luminance, image)[None] for name, image in whole.items()
        }
    if not whole:
        raise ValueError(f"photographs must name at least one{' in colour' if colour else ''}, got {photographs}")
    for name, s in itertools.product(whole, scales):
        left = tuple(side // s for side in whole[name].shape[1:])
        if min(left) < size:
            raise ValueError(f"size must fit {name} reduced by {s}, {left}, got {size}")
    reduced = [torch.nn.functional.avg_pool2d(image, s) for image in whole.values() for s in scales]
    which = torch.randint(len(reduced), (count,), generator=generator)
    place = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    pixels = torch.empty(count, 3 if colour else 1, size, size, dtype=torch.float64)
    for k, image in enumerate(reduced):
        chosen = (which == k).nonzero().flatten()
        windows = image.unfold(1, size, 1).unfold(2, size, 1)  # channels, rows, columns, size, size
        row, column = ((place[chosen, axis] * windows.shape[1 + axis]).long() for axis in (0, 1))
        pixels[chosen] = windows[:, row, column].transpose(0, 1)
    return Images(f"{size} × {size} {'colour' if colour else 'grey'} patches", pixels.clamp(0, 1), None)


def digits() -> Images:
    """The 1,797 handwritten digits of scikit-learn, 8 × 8 grey pixels, with labels 0 to 9 (UCI, CC BY 4.0)."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images).to(torch.float64)[:, None] / 16
    return Images("handwritten digits", pixels, torch.from_numpy(bunch.target).to(torch.long))


class _ArraysOnly(pickle.Unpickler):
    """Pickles can run any code; those of CIFAR-10 need only NumPy arrays and bytes."""

    # an array pickles itself by this function, whose module has changed its name since CIFAR-10 was made
    NUMPY = {"_reconstruct": np.empty(0).__reduce__()[0], "ndarray": np.ndarray, "dtype": np.dtype}

    def find_class(self, module: str, name: str) -> object:
        if module.split(".")[0] == "numpy" and name in self.NUMPY:
            return self.NUMPY[name]
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no file of CIFAR-10 does")


CIFAR10_FILES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}


def cifar10(folder: str | Path, split: str = "train") -> Images:
    """CIFAR-10 from a local folder ``cifar-10-batches-py`` in its published python format: 32 × 32, three channels.

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
            "https://www.cs.toronto.edu/~kriz/cifar.html, unpack it, and pass the path of its folder cifar-10-batches-py"
        )
    batches = [_cifar10_batch(folder / name) for name in CIFAR10_FILES[split]]
    pixels, labels = (torch.cat(parts) for parts in zip(*batches))
    return Images(f"CIFAR-10, {split}", pixels, labels)


def _cifar10_batch(path: Path) -> tuple[Tensor, Tensor]:
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
    pixels = torch.from_numpy(data.reshape(-1, 3, 32, 32)).to(torch.float64) / 255
    return pixels, torch.from_numpy(labels.astype(np.int64))
