"""The images: patches are windows of the photographs, drawn alike, and digits those of scikit-learn."""

import inspect
import random
import socket
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from skimage import data as skimage_data

from samefn.draw import Draw
from samefn.experiments.data import PHOTOGRAPHS, Images, digits, natural_patches, photograph


def original(name):
    """The photograph as its package gives it: height, width, and three channels where it has colour."""
    if PHOTOGRAPHS[name][0] == "scikit-learn":
        return sklearn.datasets.load_sample_image(name) / 255
    return getattr(skimage_data, name)() / 255


def reduced(name, scale, colour):
    """The means of blocks, taken one offset at a time; shape (channels, height, width)."""
    image = original(name)
    if not colour and image.ndim == 3:
        image = 0.2126 * image[..., 0] + 0.7152 * image[..., 1] + 0.0722 * image[..., 2]
    image = np.moveaxis(image, -1, 0) if colour else image[None]
    height, width = (side // scale * scale for side in image.shape[1:])
    image = image[:, :height, :width]
    return sum(image[:, i::scale, j::scale] for i in range(scale) for j in range(scale)) / scale**2


def search(image):
    """A function that finds all places (row, column) at which a patch is a window of the image."""
    order = np.argsort(image[0], axis=None)
    values = image[0].ravel()[order]

    def places(patch):
        size = patch.shape[-1]
        first, last = np.searchsorted(values, patch[0, 0, 0] + np.array([-1e-12, 1e-12]))
        rows, columns = np.unravel_index(order[first:last], image.shape[1:])
        inside = (rows + size <= image.shape[1]) & (columns + size <= image.shape[2])
        rows, columns = rows[inside], columns[inside]
        for i, j in np.ndindex(size, size):
            fits = (np.abs(image[:, rows + i, columns + j] - patch[:, i, j, None]) < 1e-12).all(axis=0)
            rows, columns = rows[fits], columns[fits]
        return set(zip(rows.tolist(), columns.tolist()))

    return places


def unchanged_generators():
    return torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes(), random.getstate()


def from_the_package(load, *arguments):
    """scikit-image skips a test whose photograph it lacks; here that is a failure."""
    try:
        return load(*arguments)
    except pytest.skip.Exception as skipped:
        raise OSError(skipped.msg) from skipped


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


# ---------------------------------------------------------------------------------------------
# Images


@pytest.mark.parametrize(
    ("pixels", "labels", "error", "message"),
    [
        ([[0.5]], None, TypeError, r"pixels must be a float64 torch.Tensor .*, got \[\[0.5\]\]"),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float32),
            None,
            TypeError,
            "pixels must be a float64 torch.Tensor .*, got a torch.float32 Tensor",
        ),
        (
            torch.zeros(2, 3, 3, dtype=torch.float64),
            None,
            ValueError,
            r"pixels must be .*, got .* of shape \(2, 3, 3\)",
        ),
        (
            torch.zeros(0, 1, 3, 3, dtype=torch.float64),
            None,
            ValueError,
            r"must not be empty, got shape \(0, 1, 3, 3\)",
        ),
        (
            torch.full((1, 1, 2, 2), 1.5, dtype=torch.float64),
            None,
            ValueError,
            r"pixels must lie in \[0, 1\], got values .* 1.5",
        ),
        (torch.full((1, 1, 2, 2), -0.1, dtype=torch.float64), None, ValueError, r"got values from -0.1"),
        (torch.full((1, 1, 2, 2), torch.nan, dtype=torch.float64), None, ValueError, r"got values from nan"),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float64),
            torch.zeros(3, dtype=torch.long),
            ValueError,
            r"labels .* with n = 2, got .* \(3,\)",
        ),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float64),
            torch.zeros(2, 1, dtype=torch.long),
            ValueError,
            r"labels .*got .* \(2, 1\)",
        ),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float64),
            torch.zeros(2),
            TypeError,
            "labels must be None or an int64 torch.Tensor .*, got a torch.float",
        ),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float64),
            [0, 1],
            TypeError,
            r"labels must be None or an int64 torch.Tensor .*, got \[0, 1\]",
        ),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float64),
            torch.tensor([0, -1]),
            ValueError,
            "labels must be at least 0, got -1",
        ),
    ],
)
def test_images_refuse_what_is_none(pixels, labels, error, message):
    with pytest.raises(error, match=message):
        Images("test", pixels, labels)


@given(
    arrays(np.float64, (3, 2, 2, 4), elements=st.integers(0, 255).map(lambda k: k / 255), fill=st.nothing())
)
def test_vectors_are_the_pixels_with_mean_0_and_variance_1(pixels):
    images = Images("test", torch.from_numpy(pixels))
    assert len(images) == 3 and images.shape == (2, 2, 4)
    if np.ptp(pixels) == 0:
        with pytest.raises(ValueError, match="pixels of test are all equal"):
            images.vectors()
        return
    x = images.vectors().numpy()
    assert x.shape == (3, 16)
    assert abs(x.mean()) < 1e-10 and abs(x.var(ddof=1) - 1) < 1e-10
    # an increasing affine function of the pixels, row by row: channel, then height, then width
    flat = np.array(
        [[pixels[n, c, i, j] for c in range(2) for i in range(2) for j in range(4)] for n in range(3)]
    )
    slope = np.ptp(x) / np.ptp(flat)
    assert slope > 0
    np.testing.assert_allclose(x - x[0, 0], slope * (flat - flat[0, 0]), atol=1e-9 * max(slope, 1))


@pytest.mark.parametrize(
    "value", [0.0, 0.1, 1 / 3, 1.0]
)  # rounding gives the mean of many 0.1 a deviation above 0
def test_equal_pixels_have_no_vectors(value):
    images = Images("wall", torch.full((50, 1, 12, 12), value, dtype=torch.float64))
    with pytest.raises(ValueError, match="pixels of wall are all equal"):
        images.vectors()


# ---------------------------------------------------------------------------------------------
# Photographs


def test_photographs_need_no_network(no_network):
    images = {name: from_the_package(photograph, name) for name in PHOTOGRAPHS}
    assert {len(image) for image in images.values()} == {1, 3}
    for name, image in images.items():
        assert image.dtype == torch.float64 and image.dim() == 3 and min(image.shape[1:]) >= 300
        whole = original(name)
        whole = whole[None] if whole.ndim == 2 else np.moveaxis(whole, -1, 0)
        assert np.array_equal(image.numpy(), whole)


def test_a_photograph_that_has_to_be_fetched_would_be_noticed(no_network):
    """The control: scikit-image has more photographs, which do not come with it."""
    with pytest.raises(OSError):
        from_the_package(skimage_data.eagle)


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_the_table_says_what_the_packages_say(name):
    package, author, licence = PHOTOGRAPHS[name]
    if package == "scikit-image":
        words = inspect.getdoc(getattr(skimage_data, name))
        wanted = {"CC0": ("CC0", "Creative Commons CC0"), "public domain": ("public domain",)}[licence]
    else:
        readme = (Path(sklearn.datasets.__file__).parent / "images" / "README.txt").read_text()
        (words,) = (part for part in readme.split("Image: ") if part.startswith(name))
        wanted = {"CC BY 2.0": ("creativecommons.org/licenses/by/2.0",)}[licence]
        # the names in the text are one and the same for both
        author = f"[2] https://www.flickr.com/photos/{author}/"
    assert author in words and any(w in words for w in wanted)


@pytest.mark.parametrize("name", ["eagle", "", "china", "../cat"])
def test_photograph_names_what_there_is(name):
    with pytest.raises(ValueError, match=f"name must be one of astronaut, .*flower.jpg, got {name!r}"):
        photograph(name)


# ---------------------------------------------------------------------------------------------
# Patches


def test_every_patch_is_a_window_and_every_photograph_and_scale_occurs():
    images = natural_patches(300, 6, generator=Draw(0))
    assert images.shape == (1, 6, 6) and len(images) == 300 and images.labels is None
    sources = {(name, s): search(reduced(name, s, False)) for name in PHOTOGRAPHS for s in (1, 2, 4)}
    certain = []
    for patch in images.pixels.numpy():
        found = [source for source, places in sources.items() if places(patch)]
        assert found, "a patch is a window of no reduced photograph"
        if len(found) == 1:  # white sky is in several
            certain += found
    counts = [certain.count(source) for source in sources]
    assert min(counts) > 0 and max(counts) < 30  # 10 expected of each


def test_colour_takes_the_photographs_that_have_colour():
    images = natural_patches(120, 5, scales=(2,), colour=True, generator=Draw(1))
    assert images.shape == (3, 5, 5) and "colour" in images.name
    sources = {name: search(reduced(name, 2, True)) for name in PHOTOGRAPHS if original(name).ndim == 3}
    found = [[name for name, places in sources.items() if places(patch)] for patch in images.pixels.numpy()]
    assert all(found) and {names[0] for names in found if len(names) == 1} == set(sources)


@given(st.integers(1, 9), st.integers(1, 20), st.booleans(), st.integers(0, 1000))
def test_patches_of_one_photograph(size, scale, colour, seed):
    images = natural_patches(
        5, size, scales=[scale], colour=colour, photographs=["cat"], generator=Draw(seed)
    )
    places = search(reduced("cat", scale, colour))
    assert images.shape == (3 if colour else 1, size, size)
    assert all(places(patch) for patch in images.pixels.numpy())


def test_all_places_are_drawn_alike():
    """The cat reduced by 25 is 12 × 18 pixels: a patch of 12 has one row and seven columns to be at."""
    images = natural_patches(700, 12, scales=[25], photographs=["cat"], generator=Draw(2))
    places = search(reduced("cat", 25, False))
    (found,) = zip(*(places(patch) for patch in images.pixels.numpy()))
    counts = [found.count((0, column)) for column in range(7)]
    assert sum(counts) == 700 and min(counts) > 60 and max(counts) < 140  # 100 expected, deviation 9


def test_patches_are_seeded_and_leave_other_chance_alone():
    before = unchanged_generators()
    one, two = (natural_patches(20, generator=Draw(3)).pixels for _ in range(2))
    assert torch.equal(one, two) and not torch.equal(one, natural_patches(20, generator=Draw(4)).pixels)
    assert unchanged_generators() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be an integer of at least 1, got 0"),
        ({"count": 5, "size": 0}, "size must be an integer of at least 1, got 0"),
        ({"count": 5, "scales": ()}, "scales must hold at least one number"),
        ({"count": 5, "scales": (1, 0)}, r"scales\[1\] must be an integer of at least 1, got 0"),
        ({"count": 5, "photographs": []}, r"photographs must name at least one, got \[\]"),
        ({"count": 5, "photographs": ["brick"], "colour": True}, r"at least one in colour, got \['brick'\]"),
        ({"count": 5, "photographs": ["eagle"]}, "name must be one of .* got 'eagle'"),
        (
            {"count": 5, "photographs": ["cat"], "scales": (4,), "size": 76},
            r"size must fit cat reduced by 4, \(75, 112\), got 76",
        ),
        (
            {"count": 5, "photographs": ["cat"], "scales": (1, 400)},
            r"size must fit cat reduced by 400, \(0, 1\), got 12",
        ),
    ],
)
def test_patches_refuse_what_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        natural_patches(**arguments, generator=Draw(0))


# ---------------------------------------------------------------------------------------------
# Digits


def test_digits_are_those_of_scikit_learn(no_network):
    images, bunch = digits(), sklearn.datasets.load_digits()
    assert len(images) == 1797 and images.shape == (1, 8, 8)
    assert np.array_equal(images.pixels.numpy().reshape(1797, 64) * 16, bunch.data)
    assert np.array_equal(images.labels.numpy(), bunch.target) and set(images.labels.tolist()) == set(
        range(10)
    )
