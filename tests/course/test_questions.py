"""Each question refuses plausible wrong answers, says why, and takes right ones of another make."""

import copy
from fractions import Fraction

import numpy as np
import pytest

from samefn.course.questions import questions
from solving import QUESTIONS, instance, judge, recorded


def changed(values, **new):
    return copy.deepcopy(values) | new


def negative(rows):
    return (-np.array(rows, float)).tolist()


def times(rows, factor):
    return (np.array(rows, float) * factor).tolist()


def mixed(values, *names, by_columns=()):
    """The same units in another order."""
    order = np.random.default_rng(1).permutation(len(values[names[0]]))
    rows = {name: [values[name][i] for i in order] for name in names}
    columns = {name: np.array(values[name])[:, order].tolist() for name in by_columns}
    return changed(values, **rows, **columns)


# For each question: wrong answers made of the right one and the instance, each with the most points that it
# may have and words of the feedback; and right answers of another make.
WRONG, RIGHT = {}, {}


def wrong(name):
    return lambda make: WRONG.setdefault(name, make)


def right(name):
    return lambda make: RIGHT.setdefault(name, make)


@wrong("sets")
def _(a, given):
    first, second = a["sets"]
    yield {"sets": [first, first]}, 5, "the first again"
    yield {"sets": [first[:-1], second]}, 5, "do not cancel"
    yield {"sets": [[i for i in range(12) if i not in first], second]}, 5, "do not cancel"
    yield {"sets": [first]}, 0, "2 entries, got 1"
    yield {"sets": [[i + 1 for i in first], second]}, 5, ""


@right("sets")
def _(a, given):
    yield {"sets": [a["sets"][1][::-1], a["sets"][0]]}


@wrong("rewrite")
def _(a, given):
    yield changed(a, up=negative(a["up"])), 0, "linear parts differ"  # the complement turned
    yield changed(a, up=times(a["up"], 2)), 0, "differs"
    yield {"up": given["up"], "down": np.array(given["down"]).T.tolist()}, 0, "linear parts differ"
    yield changed(a, up=[*a["up"], [1, 0, 0]], down=[[*row, 0] for row in a["down"]]), 0, "too wide"


@right("rewrite")
def _(a, given):
    yield changed(a, up=times(a["up"], 3), down=times(a["down"], 1 / 3))
    yield mixed(a, "up", by_columns=["down"])


@wrong("certificate")
def _(a, given):
    yield {"Y": negative(a["Y"])}, 0, "not positive"
    yield {"Y": times(a["Y"], 2)}, 0, "between -1 and 1"
    yield {"Y": np.eye(3).tolist()}, 0, "not positive"
    yield {"Y": times(a["Y"], 0.25)}, 0, "another Y proves more"


@right("certificate")
def _(a, given):
    yield {"Y": [[str(Fraction(x).limit_denominator(1000)) for x in row] for row in a["Y"]]}


@wrong("decide")
def _(a, given):
    swapped = [{"S": []} if "Y" in v else {"Y": np.eye(4).tolist()} for v in a["verdicts"]]
    yield {"verdicts": swapped}, 0, "this S does not"
    yield {"verdicts": [*a["verdicts"][:2], *swapped[2:]]}, 0, "only if three are"
    yield {"verdicts": [*a["verdicts"][:4], *swapped[4:]]}, 16, ""
    yield {"verdicts": [v | {"S": [0], "Y": np.eye(4).tolist()} for v in a["verdicts"]]}, 0, "and not both"


@right("decide")
def _(a, given):
    yield {"verdicts": [v if "S" in v else {"Y": times(v["Y"], 0.01)} for v in a["verdicts"]]}


@wrong("spare")
def _(a, given):
    w = given["w"]
    yield changed(a, up=[times(w, 2), *a["up"][1:]]), 0, "with your w"
    yield changed(a, new_down=negative(a["new_down"])), 2, "another function"
    yield changed(a, down=[[1, 1, 1, 0], [0, 0, 0, 0]]), 0, "alive"
    inverse = -np.linalg.inv(np.array([w, [-w[1], w[0]]]))
    planted = np.column_stack([2 * inverse[:, 0], [5, 5], 2 * inverse[:, 1], [7, 1]])
    yield changed(a, down=planted.tolist()), 0, "one of the 16 sets does"


@right("spare")
def _(a, given):
    yield mixed(a, "new_up", by_columns=["new_down"])


@wrong("gate")
def _(a, given):
    yield changed(a, down=negative(a["down"])), 0, "another linear function"
    yield changed(a, down=times(a["down"], 0.5)), 0, "another linear function"
    yield changed(a, gate=[a["gate"][0]] * 6), 0, "gates remain"
    zero = {"gate": np.zeros((3, 3)).tolist(), "up": np.eye(3).tolist(), "down": times(given["M"], 2)}
    yield zero, 0, "no row of gate"


@right("gate")
def _(a, given):
    yield changed(a, gate=times(a["gate"], 5))
    yield mixed(a, "gate", "up", by_columns=["down"])


@wrong("leaky_gelu")
def _(a, given):
    yield changed(a, out=given["v"]), 16, "constants differ"
    yield changed(a, bias=given["bias"]), 0, "another even part"
    yield changed(a, up=given["up"], bias=given["bias"]), 0, "linear parts differ"
    yield changed(a, bias=a["bias"][:7]), 0, "8 rows, 7 biases"


@right("leaky_gelu")
def _(a, given):
    yield mixed(a, "up", "bias", by_columns=["down"])


@wrong("difference")
def _(a, given):
    yield {"x": [0, 0, 0]}, 0, "both give"
    yield {"x": [1, 2, 3]}, 0, "both give"
    yield {"x": negative(a["x"])}, 0, "both give"
    yield {"x": a["x"][:2]}, 0, "3 entries"


@right("difference")
def _(a, given):
    yield {"x": times(a["x"], 1 / 64)}


@wrong("align")
def _(a, given):
    yield changed(a, signs1=negative(a["signs1"])), 0, "further away"
    yield changed(a, signs2=negative(a["signs2"])), 8, "further away"
    inverse = np.argsort(a["order2"]).tolist()
    if inverse != a["order2"]:
        yield changed(a, order2=inverse), 8, "further away"
    yield changed(a, order1=[0] * 6), 0, "one twice"


@right("align")
def _(a, given):
    yield changed(a, signs1=times(a["signs1"], 1.0))


@wrong("fewer")
def _(a, given):
    yield changed(a, out=[x + 1 for x in a["out"]]), 0, "another function"
    yield changed(a, up=negative(a["up"]), bias=negative(a["bias"])), 0, "another function"
    columns = np.array(given["down"]).T.tolist()
    yield {"up": given["up"], "bias": given["bias"], "down": columns, "out": given["out"]}, 0, "not fewer"
    wide = changed(a, up=[*a["up"], [1, 1]], bias=[*a["bias"], 0], down=[[*row, 0] for row in a["down"]])
    yield wide, 8, "fewer are possible"


@right("fewer")
def _(a, given):
    yield mixed(a, "up", "bias", by_columns=["down"])


@wrong("equivariant_maps")
def _(a, given):
    basis = a["basis"]
    yield {"basis": [*basis, basis[0]]}, 12, "they are not"
    yield {"basis": basis[:2]}, 4, "more equivariant maps"
    yield {"basis": [np.ones((4, 5)).tolist()]}, 0, "one is not"
    yield {"basis": []}, 0, "there is none"


@right("equivariant_maps")
def _(a, given):
    first, second, third = map(np.array, a["basis"])
    mixed = [first.astype(float) + 2 * second.astype(float), second, -third.astype(float)]
    yield {"basis": [m.tolist() for m in mixed]}


@wrong("latent_action")
def _(a, given):
    yield changed(a, signs_r=negative(a["signs_r"])), 9, "further away"
    yield changed(a, order_r=a["order_s"], signs_r=a["signs_s"]), 7, "further away"
    yield changed(a, order_s=list(range(8)), signs_s=[1] * 8), 7, "further away"
    yield changed(a, signs_s=[1] * 7), 0, "8 entries"


@right("latent_action")
def _(a, given):
    yield changed(a, signs_r=times(a["signs_r"], 1.0))


@wrong("layerwise")
def _(a, given):
    yield changed(a, W1=given["W1"], b=given["b"], W2=given["W2"]), 0, "another image"
    yield changed(a, order=list(range(6)), signs=[1] * 6), 0, "another image"
    uneven = np.array(a["W2"])
    uneven[:, 0] += 1
    uneven[:, 3] -= 1
    yield changed(a, W2=uneven.tolist()), 10, "it moves"
    yield changed(a, W2=times(a["W2"], 2)), 0, "another function"


@right("layerwise")
def _(a, given):
    share = np.array(a["W2"])
    moved = np.hstack([share[:, :3] * 1.5, share[:, 3:] * 0.5])
    yield changed(a, W2=moved.tolist())


@wrong("heads")
def _(a, given):
    yield {"heads": a["heads"][:1]}, 0, "another function"
    yield {"heads": [{**h, "Q": h["K"], "K": h["Q"]} for h in a["heads"]]}, 0, "another function"
    yield {"heads": given["heads"]}, 0, "attend alike"
    wide = [{**h, "Q": [*h["Q"], [0] * 4], "K": [*h["K"], [1] * 4]} for h in a["heads"]]
    yield {"heads": wide}, 13, "narrower"


@right("heads")
def _(a, given):
    yield {"heads": a["heads"][::-1]}
    scaled = [{**h, "Q": [[str(2 * Fraction(x)) for x in row] for row in h["Q"]]} for h in a["heads"]]
    yield {"heads": [{**h, "K": [[str(Fraction(x) / 2) for x in row] for row in h["K"]]} for h in scaled]}


@wrong("not_layerwise")
def _(a, given):
    w = given["w"]
    yield {"W1": [w, w[::-1]], "W2": [1, 1]}, 4, "units are exchanged"
    yield {"W1": [w, w], "W2": [1, 2]}, 0, "it changes"
    yield {"W1": [w, negative([w])[0]], "W2": [1, 1]}, 0, "it is zero"
    yield {"W1": [w[::-1], w, w], "W2": [3, 1, 2]}, 0, "another first row"


@right("not_layerwise")
def _(a, given):
    w = given["w"]
    yield {"W1": [w, negative([w])[0], w[::-1], w[::-1]], "W2": [4, 1, 1, 2]}


@wrong("width")
def _(a, given):
    blocks = a["blocks"]
    yield {"blocks": [{**b, "down": negative(b["down"])} for b in blocks]}, 0, "another function"
    own = [{"up": b["up"], "down": np.array(b["down"]).T.tolist()} for b in given["blocks"]]
    yield {"blocks": own}, 0, "another function"
    spare = [{"up": [*b["up"], [1] * len(b["up"][0])], "down": [[*r, 0] for r in b["down"]]} for b in blocks]
    yield {"blocks": spare}, 12, "too wide"


@right("width")
def _(a, given):
    yield {"blocks": [mixed(block, "up", by_columns=["down"]) for block in a["blocks"]]}


@wrong("stack")
def _(a, given):
    yield {"Y": [np.eye(5).tolist()] * 3}, 0, "not positive"
    yield {"Y": [negative(Y) for Y in a["Y"]]}, 0, "not positive"
    yield {"Y": [times(Y, 3) for Y in a["Y"]]}, 0, "between -1 and 1"
    yield {"Y": [a["Y"][0], *[np.eye(5).tolist()] * 2]}, 6, "not positive"


@right("stack")
def _(a, given):
    yield {"Y": [[[round(x, 6) for x in row] for row in Y] for Y in a["Y"]]}


@wrong("near")
def _(a, given):
    yield {"S": []}, 0, "one is 1"
    yield {"S": a["S"][1:]}, 14, "one is"
    yield {"S": list(range(26))}, 0, "one is"
    yield {"S": [*a["S"], a["S"][0]]}, 0, "one twice"


@right("near")
def _(a, given):
    yield {"S": a["S"][::-1]}


@pytest.mark.parametrize(("assignment", "name"), QUESTIONS)
def test_wrong_answers(assignment, name):
    answer, given = recorded(assignment, "ann")[name], instance(assignment, "ann")[name]
    cases = list(WRONG[name](answer, given))
    assert len(cases) >= 3
    for case, most, words in cases:
        judged = judge(assignment, name, case)
        assert judged.points <= most < judged.most and words in "\n".join(judged.lines), (case, judged)


@pytest.mark.parametrize(("assignment", "name"), QUESTIONS)
def test_right_answers_of_another_make(assignment, name):
    for case in RIGHT[name](recorded(assignment, "ann")[name], instance(assignment, "ann")[name]):
        assert judge(assignment, name, case).points == judge(assignment, name, case).most, case


def test_nothing_is_said_beyond_a_condition_that_fails():
    answer = recorded("ps1", "ann")["spare"]
    judged = judge("ps1", "spare", changed(answer, up=[[1, 1], *answer["up"][1:]]))
    assert len(judged.lines) == 1 and "your w" in judged.lines[0]


@pytest.mark.parametrize(
    ("last", "points"), [(-100, 30), (-97, 30), (-103, 30), (-96, 22), (-110, 22), (-75, 14)]
)
def test_a_near_miss_is_measured_exactly(last, points):
    given = {"up": [[1, 0], [0, 1]], "down": [[-100, 0], [0, last]], "goals": ["0.5", "0.25", "0.1", "0.03"]}
    assert questions("ps6")["near"].judge(given, {"S": [0, 1]}).points == points
