"""Answers to model-exercise-code."""

import torch


def right(page):
    def at_once(weights, biases, k):
        ends = [torch.eye(weights[0].shape[1]), *k, torch.eye(len(weights[-1]))]
        new = [
            ends[i + 1] @ W @ ends[i].T for i, W in enumerate(weights)
        ]  # signed permutations: transposed is inverse
        return new, [ends[i + 1] @ b for i, b in enumerate(biases)]

    def with_zips(weights, biases, k):
        after, before = [*k, None], [None, *k]
        moved = []
        for W, left, back in zip(weights, after, before):
            W = W if left is None else left @ W
            moved.append(W if back is None else torch.linalg.solve(back.T, W.T).T)
        return tuple(moved), tuple(b if left is None else left @ b for b, left in zip(biases, after))

    return [at_once, with_zips]


def wrong(page):
    def moving(left, right, bias):
        def answer(weights, biases, k):
            ends = [torch.eye(weights[0].shape[1]), *k, torch.eye(len(weights[-1]))]
            new = [left(ends[i + 1]) @ W @ right(ends[i]) for i, W in enumerate(weights)]
            return new, [bias(ends[i + 1]) @ b for i, b in enumerate(biases)]

        return answer

    same, back = lambda k: k, lambda k: k.T
    one = lambda k: torch.eye(len(k))
    return [
        (lambda weights, biases, k: (weights, biases), "layer 1"),
        (moving(same, same, same), "layer"),
        (moving(same, back, one), "layer 1"),
        (moving(back, same, back), "layer"),
        (moving(lambda k: k.abs(), lambda k: k.abs().T, lambda k: k.abs()), "layer 1"),
        (moving(same, one, same), "layer"),
        (lambda weights, biases, k: ([W * torch.nan for W in weights], biases), "layer 1"),
    ]
