"""CIFAR-10 is read as it was published, and running nothing."""

import os
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cifar10 import CIFAR10_FILES, cifar10


def python2_pickle(batch):
    """The bytes that cPickle of Python 2 wrote: its strings have no encoding and no copy in Python 3."""

    def string(s):
        return b"U" + bytes([len(s)]) + s if len(s) < 256 else b"T" + struct.pack("<i", len(s)) + s

    def integer(k):
        return b"K" + bytes([k]) if 0 <= k < 256 else b"J" + struct.pack("<i", k)

    def array(a):
        dtype = b"cnumpy\ndtype\n(" + string(a.dtype.str[1:].encode()) + b"K\x00K\x01tR"
        dtype += (
            b"(K\x03" + string(a.dtype.str[:1].encode()) + b"NNN" + integer(-1) + integer(-1) + b"K\x00tb"
        )
        state = (
            b"(K\x01("
            + b"".join(map(integer, a.shape))
            + b"t"
            + dtype
            + b"I00\n"
            + string(a.tobytes())
            + b"t"
        )
        return (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t"
            + string(b"b")
            + b"tR"
            + state
            + b"b"
        )

    def value(v):
        if isinstance(v, np.ndarray):
            return array(v)
        return (
            string(v)
            if isinstance(v, bytes)
            else integer(v)
            if isinstance(v, int)
            else b"](" + b"".join(map(value, v)) + b"e"
        )

    return b"\x80\x02}(" + b"".join(string(k) + value(v) for k, v in batch.items()) + b"u."


WRITERS = {
    "Python 2": python2_pickle,
    "bytes for keys": lambda batch: pickle.dumps(batch, protocol=2),
    "str for keys": lambda batch: pickle.dumps({k.decode(): v for k, v in batch.items()}, protocol=2),
    "Python 3.8": lambda batch: pickle.dumps({k.decode(): v for k, v in batch.items()}, protocol=4),
    "Python 3.14": lambda batch: pickle.dumps({k.decode(): v for k, v in batch.items()}, protocol=5),
    "protocol 5, read-only": lambda batch: pickle.dumps(
        {
            k: np.frombuffer(v.tobytes(), v.dtype).reshape(v.shape) if k == b"data" else v
            for k, v in batch.items()
        },
        protocol=5,
    ),
    "protocol 5, columns first": lambda batch: pickle.dumps(
        {k: np.asfortranarray(v) if k == b"data" else v for k, v in batch.items()}, protocol=5
    ),
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
    (folder / "test_batch").write_bytes(
        WRITERS["Python 2"](batch() | {k.encode(): v for k, v in changes.items()})
    )
    return folder


@pytest.mark.parametrize("writer", WRITERS)
def test_cifar10_is_read_as_it_was_published(tmp_path, writer):
    batches = {name: batch(2 + k, seed=k) for k, name in enumerate((*CIFAR10_FILES["train"], "test_batch"))}
    for name, content in batches.items():
        (tmp_path / name).write_bytes(WRITERS[writer](content))
    for split, names in {
        "train": [f"data_batch_{i}" for i in (1, 2, 3, 4, 5)],
        "test": ["test_batch"],
    }.items():
        images = cifar10(tmp_path, split)
        assert images.shape == (3, 32, 32) and split in images.name
        rows = [row for name in names for row in batches[name][b"data"]]
        assert images.labels.tolist() == [label for name in names for label in batches[name][b"labels"]]
        assert len(images) == len(rows)
        for image, row in zip(images.pixels.tolist(), rows):
            # the first 1024 entries are red, then green, then blue; of each the first 32 are the top row
            expected = [
                [[row[1024 * c + 32 * i + j] / 255 for j in range(32)] for i in range(32)] for c in range(3)
            ]
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
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_malicious_pickle_does_not_run(tmp_path, place, function, protocol):
    trace = tmp_path / "trace"
    arguments = {os.system: f"touch {trace}", exec: f"open({str(trace)!r}, 'w')", open: str(trace)}[function]
    attack = Attack(function, arguments, *(["w"] if function is open else []))
    content = attack if place == "the whole file" else batch() | {place.encode(): attack}
    pickled = pickle.dumps(content, protocol=protocol)
    (tmp_path / "test_batch").write_bytes(pickled)
    with pytest.raises(
        ValueError, match=rf"test_batch is not a batch .* it asks for \w+\.{function.__name__}"
    ):
        cifar10(tmp_path, "test")
    assert not trace.exists()
    pickle.loads(pickled)  # the control: the attack is a real one
    assert trace.exists()


@pytest.mark.parametrize(
    "name",
    [
        "numpy\nload",
        "numpy\nfromfile",
        "numpy.core.multiarray\nscalar",
        "_codecs\nlookup",
        "builtins\ngetattr",
        "mine\ndtype",
    ],
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


@pytest.mark.parametrize(
    "content", [b"PNG\r\n", b"\x89PNG\r\n\x1a\n", b"\x1f\x8b\x08\x00", b"K\x05K\x03R.", b"\x00" * 100]
)
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
    (tmp_path / "test_batch").write_bytes(
        pickle.dumps({b"data": 1, b"fine_labels": 2}, protocol=2)
    )  # CIFAR-100
    with pytest.raises(ValueError, match=r"must hold 'labels', got the keys \['data', 'fine_labels'\]"):
        cifar10(tmp_path, "test")
    (tmp_path / "test_batch").write_bytes(pickle.dumps([1, 2], protocol=2))
    with pytest.raises(ValueError, match="must hold a dictionary, got list"):
        cifar10(tmp_path, "test")
