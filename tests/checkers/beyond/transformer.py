"""Answers to transformer-exercise-4: matrices Y."""

import pytest
import torch

from samefn.pretrained import WeightsUnavailable, weight_file

CHECKER, ACCEPTED = "check_certificate", "Well done"

try:
    weight_file()
except WeightsUnavailable as error:
    pytest.skip(str(error), allow_module_level=True)


def terms(page):
    up, down = (torch.as_tensor(W) for W in page.weights[0])
    return up.double(), down.double()


def improved(page, steps):
    """Minimise ‖I + Σ χ_i a_iu_iᵀ‖ over the box, by plain coordinate-scaled gradient steps with momentum."""
    up, down = terms(page)
    scale = up.norm(dim=1) * down.norm(dim=0)
    up, down = up / up.norm(dim=1, keepdim=True), down / down.norm(dim=0)
    eye, chi = torch.eye(len(down)), torch.zeros(len(up))
    ahead, step = chi, 1 / float(torch.linalg.eigvalsh((down.T @ down) * (up @ up.T))[-1])
    for j in range(steps):
        residual = eye + (down * ahead) @ up
        new = (ahead - step * ((residual @ up.T) * down).sum(0)).clamp(min=0).minimum(scale)
        chi, ahead = new, new + j / (j + 3) * (new - chi)
    return eye + (down * chi) @ up


def right(page):
    Y = improved(page, 300)
    return [Y, 1000 * Y, Y.float(), Y.requires_grad_().clone(), Y.numpy(force=True), 1e305 * Y, 1e-200 * Y]


def wrong(page):
    up, down = terms(page)
    d, Y = len(down), improved(page, 3)
    nan, infinite = torch.eye(d), torch.eye(d)
    nan[0, 0], infinite[0, 0] = torch.nan, torch.inf
    return [
        (torch.eye(d), "proves nothing"),
        (torch.zeros(d, d), "not zero"),
        (nan, "finite"),
        (infinite, "finite"),
        (torch.eye(d + 1), "shape"),
        (1j * torch.eye(d), "real"),
        (1e308 * torch.eye(d), "proves nothing"),
        (torch.eye(d).int(), "proves nothing"),
        (None, "shape"),
        ("Y", "real"),
        (improved(page, 300).T, "Coefficients in [0, 1]"),
        (-improved(page, 300), "proves nothing"),
        (torch.eye(d) + down @ up, "Coefficients in [0, 1]"),
        (Y, "Coefficients in [0, 1]"),
    ]
