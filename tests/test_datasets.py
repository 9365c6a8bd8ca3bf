"""The images: patches are windows of the photographs, and CIFAR-10 is read as published, running nothing."""

import inspect
import os
import pickle
import random
import socket
import struct
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from skimage import data as skimage_data

from samefn.datasets import CIFAR10_FILES, PHOTOGRAPHS, Images, cifar10, digits, natural_patches, photograph

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("fixed")


def generator(seed):
    return torch.Generator().manual_seed(seed)


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
    """A function that finds all places (row, column) at which a patch is a window of the image, by its values alone."""
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
        ([[0.5]], None, TypeError, "pixels must be a torch.Tensor, got list"),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float32),
            None,
            TypeError,
            "pixels must have dtype torch.float64, got torch.float32",
        ),
        (torch.zeros(2, 3, 3, dtype=torch.float64), None, ValueError, r"pixels must have shape .*, got \(2, 3, 3\)"),
        (torch.zeros(0, 1, 3, 3, dtype=torch.float64), None, ValueError, r"none 0, got \(0, 1, 3, 3\)"),
        (torch.full((1, 1, 2, 2), 1.5, dtype=torch.float64), None, ValueError, r"pixels must lie in \[0, 1\], got values .* 1.5"),
        (torch.full((1, 1, 2, 2), -0.1, dtype=torch.float64), None, ValueError, r"got values from -0.1"),
        (torch.full((1, 1, 2, 2), torch.nan, dtype=torch.float64), None, ValueError, r"got values from nan"),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float64),
            torch.zeros(3, dtype=torch.long),
            ValueError,
            r"labels .* \(2,\), got \(3,\)",
        ),
        (torch.zeros(2, 1, 3, 3, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.long), ValueError, r"labels .*got \(2, 1\)"),
        (
            torch.zeros(2, 1, 3, 3, dtype=torch.float64),
            torch.zeros(2),
            TypeError,
            "labels must have dtype torch.int64, got torch.float",
        ),
        (torch.zeros(2, 1, 3, 3, dtype=torch.float64), [0, 1], TypeError, "labels must be a torch.Tensor, got list"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.float64), torch.tensor([0, -1]), ValueError, "labels must be at least 0, got -1"),
    ],
)
def test_images_refuse_what_is_none(pixels, labels, error, message):
    with pytest.raises(error, match=message):
        Images("test", pixels, labels)


@given(arrays(np.float64, (3, 2, 2, 4), elements=st.integers(0, 255).map(lambda k: k / 255), fill=st.nothing()))
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
    flat = np.array([[pixels[n, c, i, j] for c in range(2) for i in range(2) for j in range(4)] for n in range(3)])
    slope = np.ptp(x) / np.ptp(flat)
    assert slope > 0
    np.testing.assert_allclose(x - x[0, 0], slope * (flat - flat[0, 0]), atol=1e-9 * max(slope, 1))


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1.0])  # rounding gives the mean of many 0.1 a deviation above 0
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
        author = f"[2] https://www.flickr.com/photos/{author}/"  # the names in the text are one and the same for both
    assert author in words and any(w in words for w in wanted)


@pytest.mark.parametrize("name", ["eagle", "", "china", "../cat", 3, None])
def test_photograph_names_what_there_is(name):
    with pytest.raises(ValueError, match=f"name must be one of astronaut, .*flower.jpg, got {name!r}"):
        photograph(name)


# ---------------------------------------------------------------------------------------------
# Patches


def test_every_patch_is_a_window_and_every_photograph_and_scale_occurs():
    images = natural_patches(300, 6, generator=generator(0))
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
    images = natural_patches(120, 5, scales=(2,), colour=True, generator=generator(1))
    assert images.shape == (3, 5, 5) and "colour" in images.name
    sources = {name: search(reduced(name, 2, True)) for name in PHOTOGRAPHS if original(name).ndim == 3}
    found = [[name for name, places in sources.items() if places(patch)] for patch in images.pixels.numpy()]
    assert all(found) and {names[0] for names in found if len(names) == 1} == set(sources)


@given(st.integers(1, 9), st.integers(1, 20), st.booleans(), st.integers(0, 1000))
def test_patches_of_one_photograph(size, scale, colour, seed):
    images = natural_patches(5, size, scales=[scale], colour=colour, photographs=["cat"], generator=generator(seed))
    places = search(reduced("cat", scale, colour))
    assert images.shape == (3 if colour else 1, size, size)
    assert all(places(patch) for patch in images.pixels.numpy())


def test_all_places_are_drawn_alike():
    """The cat reduced by 25 is 12 × 18 pixels: a patch of 12 has one row and seven columns to be at."""
    images = natural_patches(700, 12, scales=[25], photographs=["cat"], generator=generator(2))
    places = search(reduced("cat", 25, False))
    (found,) = zip(*(places(patch) for patch in images.pixels.numpy()))
    counts = [found.count((0, column)) for column in range(7)]
    assert sum(counts) == 700 and min(counts) > 60 and max(counts) < 140  # 100 expected, deviation 9


def test_patches_are_seeded_and_leave_other_chance_alone():
    before = unchanged_generators()
    one, two = (natural_patches(20, generator=generator(3)).pixels for _ in range(2))
    assert torch.equal(one, two) and not torch.equal(one, natural_patches(20, generator=generator(4)).pixels)
    assert unchanged_generators() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count, size and scales must be at least 1, got 0, 12"),
        ({"count": 5, "size": 0}, "must be at least 1, got 5, 0"),
        ({"count": 5, "scales": ()}, r"must be at least 1, got 5, 12 and \(\)"),
        ({"count": 5, "scales": (1, 0)}, r"must be at least 1, got 5, 12 and \(1, 0\)"),
        ({"count": 5, "photographs": []}, r"photographs must name at least one, got \[\]"),
        ({"count": 5, "photographs": ["brick"], "colour": True}, r"at least one in colour, got \['brick'\]"),
        ({"count": 5, "photographs": ["eagle"]}, "name must be one of .* got 'eagle'"),
        (
            {"count": 5, "photographs": ["cat"], "scales": (4,), "size": 76},
            r"size must fit cat reduced by 4, \(75, 112\), got 76",
        ),
        ({"count": 5, "photographs": ["cat"], "scales": (1, 400)}, r"size must fit cat reduced by 400, \(0, 1\), got 12"),
    ],
)
def test_patches_refuse_what_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        natural_patches(**arguments, generator=generator(0))


# ---------------------------------------------------------------------------------------------
# Digits


def test_digits_are_those_of_scikit_learn(no_network):
    images, bunch = digits(), sklearn.datasets.load_digits()
    assert len(images) == 1797 and images.shape == (1, 8, 8)
    assert np.array_equal(images.pixels.numpy().reshape(1797, 64) * 16, bunch.data)
    assert np.array_equal(images.labels.numpy(), bunch.target) and set(images.labels.tolist()) == set(range(10))


# ---------------------------------------------------------------------------------------------
# CIFAR-10


def python2_pickle(batch):
    """The bytes that cPickle of Python 2 wrote for a batch: its strings have no encoding and no copy in Python 3."""

    def string(s):
        return b"U" + bytes([len(s)]) + s if len(s) < 256 else b"T" + struct.pack("<i", len(s)) + s

    def integer(k):
        return b"K" + bytes([k]) if 0 <= k < 256 else b"J" + struct.pack("<i", k)

    def array(a):
        dtype = b"cnumpy\ndtype\n(" + string(a.dtype.str[1:].encode()) + b"K\x00K\x01tR"
        dtype += b"(K\x03" + string(a.dtype.str[:1].encode()) + b"NNN" + integer(-1) + integer(-1) + b"K\x00tb"
        state = b"(K\x01(" + b"".join(map(integer, a.shape)) + b"t" + dtype + b"I00\n" + string(a.tobytes()) + b"t"
        return b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + string(b"b") + b"tR" + state + b"b"

    def value(v):
        if isinstance(v, np.ndarray):
            return array(v)
        return string(v) if isinstance(v, bytes) else integer(v) if isinstance(v, int) else b"](" + b"".join(map(value, v)) + b"e"

    return b"\x80\x02}(" + b"".join(string(k) + value(v) for k, v in batch.items()) + b"u."


WRITERS = {
    "Python 2": python2_pickle,
    "bytes for keys": lambda batch: pickle.dumps(batch, protocol=2),
    "str for keys": lambda batch: pickle.dumps({k.decode(): v for k, v in batch.items()}, protocol=2),
    "Python 3.8": lambda batch: pickle.dumps({k.decode(): v for k, v in batch.items()}, protocol=4),
}


def batch(n=3, seed=0):
    rng = np.random.default_rng(seed)
    return {
        b"batch_label": b"testing batch 1 of 1",
        b"labels": rng.integers(0, 10, n).tolist(),
        b"data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
        b"filenames": [b"image_%d.png" % i for i in range(n)],
    }


def written(folder, **changes):
    """The file of a folder's test set, with some fields changed."""
    (folder / "test_batch").write_bytes(WRITERS["Python 2"](batch() | {k.encode(): v for k, v in changes.items()}))
    return folder


@pytest.mark.parametrize("writer", WRITERS)
def test_cifar10_is_read_as_it_was_published(tmp_path, writer):
    batches = {name: batch(2 + k, seed=k) for k, name in enumerate((*CIFAR10_FILES["train"], "test_batch"))}
    for name, content in batches.items():
        (tmp_path / name).write_bytes(WRITERS[writer](content))
    for split, names in {"train": [f"data_batch_{i}" for i in (1, 2, 3, 4, 5)], "test": ["test_batch"]}.items():
        images = cifar10(tmp_path, split)
        assert images.shape == (3, 32, 32) and split in images.name
        rows = [row for name in names for row in batches[name][b"data"]]
        assert images.labels.tolist() == [label for name in names for label in batches[name][b"labels"]]
        assert len(images) == len(rows)
        for image, row in zip(images.pixels.tolist(), rows):
            # the first 1024 entries are red, then green, then blue; of each the first 32 are the top row
            expected = [[[row[1024 * c + 32 * i + j] / 255 for j in range(32)] for i in range(32)] for c in range(3)]
            assert image == expected
    assert torch.equal(cifar10(str(tmp_path)).pixels, cifar10(tmp_path, "train").pixels)


def test_a_red_picture_is_red(tmp_path):
    data = np.zeros((1, 3072), dtype=np.uint8)
    data[0, :1024], data[0, 1024 : 1024 + 32] = 255, 51
    images = cifar10(written(tmp_path, data=data, labels=[9]), "test")
    red, green, blue = images.pixels[0]
    assert red.eq(1).all() and green[0].eq(0.2).all() and not green[1:].any() and not blue.any()


def test_what_is_missing_and_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        cifar10(tmp_path / "nowhere")
    for part in (
        "nowhere",
        "data_batch_1, data_batch_2",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "cifar-10-python.tar.gz",
    ):
        assert part in str(error.value)
    written(tmp_path)
    with pytest.raises(FileNotFoundError, match="data_batch_1"):
        cifar10(tmp_path)
    assert len(cifar10(tmp_path, "test")) == 3
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'validation'"):
        cifar10(tmp_path, "validation")


class Attack:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("place", ["data", "labels", "another key", "the whole file"])
@pytest.mark.parametrize("function", [os.system, exec, open])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_does_not_run(tmp_path, place, function, protocol):
    trace = tmp_path / "trace"
    arguments = {os.system: f"touch {trace}", exec: f"open({str(trace)!r}, 'w')", open: str(trace)}[function]
    attack = Attack(function, arguments, *(["w"] if function is open else []))
    content = attack if place == "the whole file" else batch() | {place.encode(): attack}
    pickled = pickle.dumps(content, protocol=protocol)
    (tmp_path / "test_batch").write_bytes(pickled)
    with pytest.raises(ValueError, match=rf"test_batch is not a batch .* it asks for \w+\.{function.__name__}"):
        cifar10(tmp_path, "test")
    assert not trace.exists()
    pickle.loads(pickled)  # the control: the attack is a real one
    assert trace.exists()


@pytest.mark.parametrize(
    "name",
    ["numpy\nload", "numpy\nfromfile", "numpy.core.multiarray\nscalar", "_codecs\nlookup", "builtins\ngetattr", "mine\ndtype"],
)
def test_only_what_an_array_needs_is_ever_looked_up(tmp_path, name):
    (tmp_path / "test_batch").write_bytes(f"c{name}\n.".encode())
    with pytest.raises(ValueError, match=f"asks for {name.replace(chr(10), '.')}"):
        cifar10(tmp_path, "test")


@given(st.integers(0, len(python2_pickle(batch())) - 1))
def test_a_truncated_file_is_refused(tmp_path_factory, length):
    folder = tmp_path_factory.mktemp("truncated")
    whole = written(folder) / "test_batch"
    whole.write_bytes(whole.read_bytes()[:length])
    with pytest.raises(ValueError, match="test_batch is not a batch of CIFAR-10 in its python format: "):
        cifar10(folder, "test")


@pytest.mark.parametrize("content", [b"PNG\r\n", b"\x89PNG\r\n\x1a\n", b"\x1f\x8b\x08\x00", b"K\x05K\x03R.", b"\x00" * 100])
def test_another_kind_of_file_is_refused(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match="test_batch is not a batch of CIFAR-10 in its python format: "):
        cifar10(tmp_path, "test")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": np.zeros((3, 3073), np.uint8)},
            r"data of .*test_batch must be uint8 of shape \(n, 3072\), got uint8 \(3, 3073\)",
        ),
        ({"data": np.zeros((3, 32, 32, 3), np.uint8)}, r"got uint8 \(3, 32, 32, 3\)"),
        ({"data": np.zeros((3, 3072))}, r"data of .* got float64 \(3, 3072\)"),
        ({"data": np.zeros((3, 3072), np.int8)}, r"data of .* got int8"),
        ({"data": [[0] * 5, [1]]}, "data of .* got list"),
        ({"data": b"pixels"}, "data of .* got bytes"),
        ({"labels": [1, 2]}, r"labels of .* must be 3 integers from 0 to 9, got shape \(2,\)"),
        ({"labels": [1, 2, 10]}, "labels of .* with 10"),
        ({"labels": [1, -1, 3]}, "labels of .* with -1"),
        ({"labels": np.array([1.0, 2.0, 3.0])}, "labels of .* with 1.0"),
        ({"labels": [b"cat", 2, 3]}, "labels of .* with b'cat'"),
        ({"labels": [[1], [2], [3]]}, r"labels of .* got shape \(3, 1\)"),
        ({"labels": [[1], [2, 3], 4]}, r"labels of .* with \[1\]"),
        ({"labels": 3}, r"labels of .* got shape \(\)"),
    ],
)
def test_fields_of_another_kind_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        cifar10(written(tmp_path, **changes), "test")


@pytest.mark.parametrize("labels", [np.array([0, 9, 4]), np.array([0, 9, 4], np.uint8)])
def test_labels_may_be_an_array(tmp_path, labels):
    assert cifar10(written(tmp_path, labels=labels), "test").labels.tolist() == [0, 9, 4]


def test_fields_that_are_not_there_and_what_is(tmp_path):
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": 1, b"fine_labels": 2}, protocol=2))  # CIFAR-100
    with pytest.raises(ValueError, match=r"must hold 'labels', got the keys \['data', 'fine_labels'\]"):
        cifar10(tmp_path, "test")
    (tmp_path / "test_batch").write_bytes(pickle.dumps([1, 2], protocol=2))
    with pytest.raises(ValueError, match="must hold a dictionary, got list"):
        cifar10(tmp_path, "test")
