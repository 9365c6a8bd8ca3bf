"""Part II: symmetries of weights, and what they say of networks that commute with a group.

Start with ``groups`` (groups and representations) and ``layerwise`` (equivariance end to end and layer by
layer, ``latent_actions``).  They stand on ``units`` (when two units are one), ``alignment`` (two networks
up to symmetry) and ``redundancy`` (drop, fold, merge).  ``attention`` and ``heads`` are about attention
layers without and with positions, ``images`` about pixels and tokens, ``finite`` and ``finite_examples``
about models on finite sets.  ``planted``, ``planted_attention`` and ``planted_heads`` make networks with
a known symmetry, ``approximate`` serves the chapter ``mirror``; the others are named after the chapter
that they serve.
"""
