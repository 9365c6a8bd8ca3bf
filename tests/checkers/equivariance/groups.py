"""Answers to groups-exercise-dimension."""

import numpy as np
import torch


def right(page):
    def by_null_space(rho_in, rho_out):
        rows = [
            torch.kron(torch.eye(rho_out.matrices.shape[1]), g.T.contiguous())
            - torch.kron(h.contiguous(), torch.eye(rho_in.matrices.shape[1]))
            for g, h in zip(rho_in.matrices, rho_out.matrices)
        ]
        system = torch.cat(rows)
        return system.shape[1] - int(torch.linalg.matrix_rank(system))

    def by_characters(rho_in, rho_out):
        character = lambda rho: torch.einsum("gii->g", rho.matrices).numpy()
        return np.rint((character(rho_in) * character(rho_out)).mean()).astype(int)

    return [by_null_space, by_characters]


def wrong(page):
    trace = lambda rho: torch.einsum("gii->g", rho.matrices)

    def not_averaged(rho_in, rho_out):
        return round(float((trace(rho_in) * trace(rho_out)).sum()))

    def of_the_sum(rho_in, rho_out):
        return round(float((trace(rho_in) + trace(rho_out)).mean()))

    def fixed_vectors(rho_in, rho_out):
        return round(float(trace(rho_in).mean() * trace(rho_out).mean()))

    def first_generator(rho_in, rho_out):
        g, h = rho_in.matrices[1], rho_out.matrices[1]
        system = torch.kron(torch.eye(len(h)), g.T.contiguous()) - torch.kron(
            h.contiguous(), torch.eye(len(g))
        )
        return system.shape[1] - int(torch.linalg.matrix_rank(system))

    return [
        (lambda rho_in, rho_out: None, "trivial to trivial"),
        (lambda rho_in, rho_out: rho_in.matrices.shape[1] * rho_out.matrices.shape[1], "C4 permuting"),
        (lambda rho_in, rho_out: float("nan"), "trivial to trivial"),
        (not_averaged, "trivial to trivial"),
        (of_the_sum, "trivial to trivial"),
        (fixed_vectors, "C4 permuting"),
        (first_generator, "D4 on the plane"),
        (lambda rho_in, rho_out: Anything(0), "trivial to trivial"),
    ]


class Anything(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
