"""Answers to gated-exercise-radius."""

import torch


def by_units(f):
    return float((f.down.norm(dim=0) * f.gate.norm(dim=1) * f.up.norm(dim=1)).sum())


def right(page):
    theorem = page.quadratic_constant

    def shown(G, G_prime):
        return 1 / (theorem(G) + theorem(G_prime))

    def as_tensor(G, G_prime):
        return torch.tensor(1 / (min(by_units(G), theorem(G)) + min(by_units(G_prime), theorem(G_prime))))

    return [shown, as_tensor, lambda G, G_prime: 0.9999 * shown(G, G_prime)]


def wrong(page):
    theorem = page.quadratic_constant

    def of(constant, combine):
        return lambda G, G_prime: 1 / (1e-300 + combine(constant(G), constant(G_prime)))

    def largest_unit(f):
        return float((f.down.norm(dim=0) * f.gate.norm(dim=1) * f.up.norm(dim=1)).max())

    def frobenius(f):
        return float(f.down.norm() * f.gate.norm() * f.up.norm())

    def half(f):  # of a bound of SiLU(z)/z that holds only for negative z
        return 0.3 * theorem(f)

    norm = lambda W: float(torch.linalg.matrix_norm(W, 2))

    def of_the_product(f):  # units can cancel in W_down W_up
        return norm(f.down @ f.up) * float(f.gate.norm(dim=1).max())

    def mean_gate(f):
        sizes = f.gate.norm(dim=1)
        return norm(f.down) * norm(f.up) * float(sizes[sizes > 0].mean())

    def inner_products(f):
        return float((f.down.norm(dim=0) * (f.gate * f.up).sum(1).abs()).sum())

    def quadratic_term(f):  # units can cancel in it
        return float(torch.einsum("di,ij,ik->djk", f.down, f.gate, f.up).norm())

    def without_down(f):
        return norm(f.up) * float(f.gate.norm(dim=1).max())

    return [
        (of(of_the_product, lambda a, b: a + b), "meet at"),
        (of(mean_gate, lambda a, b: a + b), "meet at"),
        (of(inner_products, lambda a, b: a + b), "meet at"),
        (of(quadratic_term, lambda a, b: a + b), "meet at"),
        (of(without_down, lambda a, b: a + b), "timid"),
        (lambda G, G_prime: min(1.0, page.by_unit(G, G_prime)), "timid"),
        (lambda G, G_prime: None, "a number r > 0"),
        (lambda G, G_prime: [0.1], "a number r > 0"),
        (lambda G, G_prime: torch.ones(2), "a number r > 0"),
        (lambda G, G_prime: 1.0, "meet at"),
        (lambda G, G_prime: 0.0, "meet at"),
        (lambda G, G_prime: float("nan"), "r = nan"),
        (lambda G, G_prime: 1e-9, "timid"),
        (of(theorem, max), "meet at"),
        (of(theorem, lambda a, b: abs(b - a)), "meet at"),
        (of(theorem, lambda a, b: a), "meet at"),
        (of(theorem, lambda a, b: b), "meet at"),
        (of(half, lambda a, b: a + b), "meet at"),
        (of(largest_unit, lambda a, b: a + b), "meet at"),
        (of(frobenius, lambda a, b: 1e3 * (a + b)), "timid"),
    ]
