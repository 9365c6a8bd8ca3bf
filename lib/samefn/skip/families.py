"""Which models use which block, and what Part I says about each: the table of the summary chapter."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..activations import Activation, leaky_relu, relu_power
from ..arguments import Count
from ..networks import Residual, random_gated_mlp, random_mlp
from .absorption import Absorption, absorb


@dataclass(frozen=True)
class Family:
    """A kind of block (``gated`` or not, with its activation) and models that are built from it.

    >>> from samefn.skip.families import FAMILIES
    >>> FAMILIES[0].name, FAMILIES[0].models
    ('SwiGLU', ('LLaMA', 'Mistral', 'DeepSeek', 'PaLM', 'Qwen2', 'OLMo'))
    """

    name: str
    activation: str | Activation
    gated: bool = False
    models: tuple[str, ...] = ()


FAMILIES = (
    Family("SwiGLU", "silu", True, ("LLaMA", "Mistral", "DeepSeek", "PaLM", "Qwen2", "OLMo")),
    Family("GeGLU", "gelu", True, ("T5 v1.1", "Gemma")),
    Family("ReGLU", "relu", True),
    Family("bilinear", "identity", True),
    Family("GLU", "sigmoid", True, ("gated convolutional language models",)),
    Family("ReLU²", relu_power(2), False, ("Primer", "Nemotron-4")),
    Family("ReLU", "relu", False, ("the first transformer", "T5", "OPT")),
    Family("leaky ReLU", leaky_relu(0.01)),
    Family("GELU", "gelu", False, ("BERT", "RoBERTa", "MiniLM", "ViT")),
    Family("GELU, tanh form", "gelu_tanh", False, ("GPT-2", "BLOOM")),
    Family("SiLU", "silu", False, ("EfficientNet",)),
    Family("softplus", "softplus"),
    Family("log-sigmoid", "logsigmoid"),
    Family("hardswish", "hardswish", False, ("MobileNetV3",)),
    Family("ELU", "elu"),
    Family("CELU", "celu"),
    Family("SELU", "selu", False, ("self-normalizing networks",)),
    Family("Mish", "mish", False, ("YOLOv4",)),
    Family("tanh", "tanh"),
    Family("sigmoid", "sigmoid"),
    Family("softsign", "softsign"),
    Family("hardtanh", "hardtanh"),
    Family("ReLU6", "relu6", False, ("MobileNetV2",)),
)


def verdicts(d: Count = 4, m: Count = 8, *, generator: torch.Generator) -> list[tuple[Family, Absorption]]:
    """What :func:`samefn.skip.absorption.absorb` says of one random block of each family.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.families import verdicts
    >>> rows = verdicts(generator=Draw(0))
    >>> [family.name for family, verdict in rows if verdict.absorbed]
    []
    >>> {verdict.absorbed for _, verdict in rows}
    {False}
    """
    rows = []
    for family in FAMILIES:
        draw = random_gated_mlp if family.gated else random_mlp
        rows.append((family, absorb(Residual(draw(d, m, family.activation, generator=generator)))))
    return rows
