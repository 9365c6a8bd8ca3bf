"""Real images, all in one form: patches of photographs and handwritten digits.

They travel with scikit-image and scikit-learn and need no download.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from ..arguments import Count


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size: ``pixels`` are float64 in [0, 1], ``labels`` are int64 from 0, or None.

    Raises TypeError or ValueError, naming the argument, for anything else.
    """

    name: str
    pixels: Float64[Tensor, "n channels height width"]
    labels: Int64[Tensor, "n"] | None = None

    def __post_init__(self) -> None:
        if self.pixels.numel() == 0:
            raise ValueError(f"pixels must not be empty, got shape {tuple(self.pixels.shape)}")
        if not (self.pixels.min() >= 0 and self.pixels.max() <= 1):
            raise ValueError(
                f"pixels must lie in [0, 1], got values from {self.pixels.min():g} to {self.pixels.max():g}"
            )
        if self.labels is not None and self.labels.min() < 0:
            raise ValueError(f"labels must be at least 0, got {self.labels.min()}")

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    def vectors(self) -> Float[Tensor, "n d"]:
        """The images as vectors, shifted and scaled to mean 0 and variance 1 over all entries.

        Raises ValueError if all pixels are equal.
        """
        flat = self.pixels.flatten(1)
        if flat.min() == flat.max():  # rounding can leave equal numbers a deviation above 0
            raise ValueError(f"pixels of {self.name} are all equal and cannot be scaled to variance 1")
        return (flat - flat.mean()) / flat.std()


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
    count: Count,
    size: Count = 12,
    *,
    scales: Sequence[Count] = (1, 2, 4),
    colour: bool = False,
    photographs: Sequence[str] | None = None,
    generator: torch.Generator,
) -> Images:
    """``count`` square patches of ``size`` pixels from the bundled photographs reduced by each of ``scales``.

    A photograph reduced by s holds the means of s × s blocks.  Photograph, scale and place are drawn
    uniformly.  Grey values are luma (the weights of ITU-R BT.709); with ``colour``, only photographs
    that have colour are used.  ``photographs`` restricts them by name (see :data:`PHOTOGRAPHS`), for
    instance to keep some for testing.  Raises ValueError for sizes below 1, no photograph, or a patch
    larger than a reduced photograph.
    """
    if not scales:
        raise ValueError("scales must hold at least one number, got none")
    whole = _photographs(PHOTOGRAPHS if photographs is None else photographs, colour)
    if not whole:
        raise ValueError(
            f"photographs must name at least one{' in colour' if colour else ''}, got {photographs}"
        )
    for (name, image), s in itertools.product(whole.items(), scales):
        left = image.shape[1] // s, image.shape[2] // s
        if min(left) < size:
            raise ValueError(f"size must fit {name} reduced by {s}, {left}, got {size}")
    reduced = [torch.nn.functional.avg_pool2d(image, s) for image in whole.values() for s in scales]
    pixels = _windows(reduced, count, size, generator)
    return Images(f"{size} × {size} {'colour' if colour else 'grey'} patches", pixels.clamp(0, 1))


def _photographs(names: Iterable[str], colour: bool) -> dict[str, Float[Tensor, "_ _ _"]]:
    """Those that have colour, or all in grey."""
    whole = {name: photograph(name) for name in names}
    if colour:
        return {name: image for name, image in whole.items() if len(image) == 3}
    luma = torch.tensor([0.2126, 0.7152, 0.0722], dtype=torch.float64)
    return {
        name: image if len(image) == 1 else torch.einsum("c,chw->hw", luma, image)[None]
        for name, image in whole.items()
    }


def _windows(
    images: Sequence[Float[Tensor, "channels _ _"]], count: int, size: int, generator: torch.Generator
) -> Float[Tensor, "{count} channels {size} {size}"]:
    """Square windows at places drawn uniformly, of images drawn uniformly."""
    which = torch.randint(len(images), (count,), generator=generator)
    place = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    pixels = torch.empty(count, len(images[0]), size, size, dtype=torch.float64)
    for k, image in enumerate(images):
        chosen = (which == k).nonzero().flatten()
        windows = image.unfold(1, size, 1).unfold(2, size, 1)  # channels, rows, columns, size, size
        row, column = ((place[chosen, axis] * windows.shape[1 + axis]).long() for axis in (0, 1))
        pixels[chosen] = windows[:, row, column].transpose(0, 1)
    return pixels


def digits() -> Images:
    """The 1,797 handwritten digits of scikit-learn, 8 × 8 grey pixels, with labels (UCI, CC BY 4.0)."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    pixels = torch.from_numpy(np.asarray(rows)).to(torch.float64).view(-1, 1, 8, 8) / 16
    return Images("handwritten digits", pixels, torch.from_numpy(np.asarray(labels)).to(torch.long))
