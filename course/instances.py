"""Draw each student's instances: from a secret, equally hard for all.

The numbers come from HMAC-SHA256 with the course's secret as key and course, term, assignment, question and
student as message, so that nobody without the secret can draw them, and the same ones come again for grading.
Equally hard: all instances of a question have the same sizes and the same number of solutions by
construction, and are drawn again until a predicate holds that is stated in its function.
"""

import hmac
import json
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from samefn.course.ps1 import bound, multiple_of_identity, total
from samefn.course.ps3 import commuting
from samefn.course.questions import questions

PRIME = 1_000_003  # ranks modulo a prime are lower bounds of ranks


class Stream(random.Random):
    """Random numbers of HMAC-SHA256 in counter mode: the same on every machine and Python."""

    def __init__(self, secret: bytes, *message: str) -> None:
        super().__init__(0)
        self.key = hmac.digest(secret, json.dumps(message).encode(), "sha256")
        self.blocks = self.pool = self.left = 0  # blocks made, bits that are left, how many

    def getrandbits(self, k: int) -> int:
        while self.left < k:
            block = hmac.digest(self.key, self.blocks.to_bytes(8, "big"), "sha256")
            self.pool, self.left = self.pool << 256 | int.from_bytes(block, "big"), self.left + 256
            self.blocks += 1
        self.left -= k
        bits, self.pool = self.pool >> self.left, self.pool & (1 << self.left) - 1
        return bits

    def random(self) -> float:
        return self.getrandbits(53) / 2**53

    def vector(self, d: int, largest: int) -> list[int]:
        """A vector of integers from -largest to largest, not zero."""
        while True:
            entries = [self.randint(-largest, largest) for _ in range(d)]
            if any(entries):
                return entries

    def rows(self, m: int, d: int, largest: int, besides: Sequence[list[int]] = ()) -> list[list[int]]:
        """Rows of which no two are collinear, nor one with a row of ``besides``."""
        found = list(besides)
        while len(found) < m + len(besides):
            row = self.vector(d, largest)
            if not any(collinear(row, other) for other in found):
                found.append(row)
        return found[len(besides) :]

    def unimodular(self, d: int, largest: int) -> list[list[int]]:
        """A square matrix with determinant 1 or -1 and entries up to ``largest``."""
        while True:
            rows = [self.vector(d, largest) for _ in range(d)]
            if abs(determinant(rows)) == 1:
                return rows

    def shuffled(self, things: list) -> list:
        return self.sample(things, len(things))

    def signs(self, n: int) -> list[int]:
        return [self.choice((1, -1)) for _ in range(n)]


def draw(assignment: str, secret: bytes, course: str, term: str, student: str) -> dict[str, dict]:
    """The instance of each question of an assignment."""
    drawn = {}
    for name in questions(assignment):
        draws = Stream(secret, course, term, assignment, name, student)
        drawn[name] = drawn["sets"] if name == "rewrite" else globals()[f"draw_{name}"](draws)
    return drawn


# --- exact linear algebra on small integer matrices --------------------------------------------


def determinant(rows: list[list[int]]) -> int:
    """By expansion: the matrices are small."""
    if len(rows) == 1:
        return rows[0][0]
    minors = ([row[:j] + row[j + 1 :] for row in rows[1:]] for j in range(len(rows)))
    return sum((-1) ** j * rows[0][j] * determinant(minor) for j, minor in enumerate(minors) if rows[0][j])


def rank(rows: list) -> int:
    """The rank modulo a prime: never more than the rank."""
    rows, found = [[x % PRIME for x in row] for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        factor = pow(rows[found][column], -1, PRIME)
        for i in range(found + 1, len(rows)):
            share = rows[i][column] * factor % PRIME
            if share:
                rows[i] = [(x - share * y) % PRIME for x, y in zip(rows[i], rows[found])]
        found += 1
    return found


def solve_left(matrix: list[list[int]], unimodular: list[list[int]]) -> list[list[int]]:
    """The integer matrix A with A U = matrix, for det U = ±1 (by the adjugate)."""
    d, det = len(unimodular), determinant(unimodular)
    cofactor = [
        [
            (-1) ** (i + j) * determinant([r[:j] + r[j + 1 :] for k, r in enumerate(unimodular) if k != i])
            for j in range(d)
        ]
        for i in range(d)
    ]
    inverse = [[det * cofactor[j][i] for j in range(d)] for i in range(d)]
    return [[sum(x * row[j] for x, row in zip(line, inverse)) for j in range(d)] for line in matrix]


def products(up: list, down: list) -> list[tuple[int, ...]]:
    return [tuple(x * y for x in a for y in u) for u, a in zip(up, down)]


def adding_up(
    stream: Stream, target: list, size: int, *, rows: int, columns: int, most: int
) -> tuple[list, list]:
    """``size`` units whose a_iu_iᵀ add up to ``target``, no two rows collinear.

    Entries of u_i to ``rows``, of a_i to ``columns`` where they are drawn, to ``most`` where they follow.
    """
    d = len(target)
    while True:
        basis, down = stream.unimodular(d, rows), [stream.vector(d, columns) for _ in range(size - d)]
        up = stream.rows(size - d, d, rows, besides=basis)
        rest = total(up, down, range(size - d))
        missing = [[target[i][j] - int(rest[i * d + j]) for j in range(d)] for i in range(d)]
        following = [list(column) for column in zip(*solve_left(missing, basis))]
        if independent(basis) and small(following, most):
            return basis + up, following + down


def reordered(stream: Stream, *lists: list) -> list[list]:
    """The lists, all in one new order."""
    return [list(entries) for entries in zip(*stream.shuffled(list(zip(*lists))))]


def independent(up: list) -> bool:
    """Whether no row is zero and no two are collinear."""
    return all(map(any, up)) and not any(collinear(u, v) for u, v in combinations(up, 2))


def collinear(u: list[int], v: list[int]) -> bool:
    return all(u[i] * v[j] == u[j] * v[i] for i in range(len(u)) for j in range(i))


def small(down: list, largest: int) -> bool:
    return all(any(a) and max(map(abs, a)) <= largest for a in down)


# --- problem set 1 -----------------------------------------------------------------------------


def draw_sets(stream: Stream) -> dict:
    """d = 3, m = 12: exactly two sets with P_S = -2I, disjoint, of four units each; rank 9 among the
    a_iu_iᵀ.
    """
    goal = [[-2 * (i == j) for j in range(3)] for i in range(3)]
    while True:
        halves = [adding_up(stream, goal, 4, rows=2, columns=3, most=9) for _ in range(2)]
        up = halves[0][0] + halves[1][0] + [stream.vector(3, 2) for _ in range(4)]
        down = halves[0][1] + halves[1][1] + [stream.vector(3, 5) for _ in range(4)]
        if independent(up) and rank(products(up, down)) == 9 and count(up, down, goal) == 2:
            up, down = reordered(stream, up, down)
            return {"up": up, "down": down}


def count(up: list, down: list, goal: list) -> int:
    """The number of sets S with P_S = goal, all of them tried."""
    sets = np.array(list(product((0, 1), repeat=len(up))))
    return int((sets @ np.array(products(up, down)) == np.ravel(goal)).all(1).sum())


def draw_certificate(stream: Stream) -> dict:
    """d = 3, m = 20: a planted Y of trace 2 with entries ±1, ±½ has the bound 4; 3 is asked.  Neither Y
    = I nor a
    single entry proves anything.
    """
    d = 3
    while True:
        up, down = planted_certificate(stream, d, 20, 3, 2)
        single = [
            [[Fraction(sign * ((i, j) == at)) for j in range(d)] for i in range(d)]
            for at in product(range(d), repeat=2)
            for sign in (1, -1)
        ]
        identity = multiple_of_identity(1, d)
        if all(bound(Y, multiple_of_identity(2, d), up, down) <= 0 for Y in [identity, *single]):
            return {"up": up, "down": down, "beta": 3}


def planted_certificate(stream: Stream, d: int, m: int, largest: int, trace: int) -> tuple[list, list]:
    """Units with a_iᵀYu_i ≥ 0 for a Y of this trace with entries ±1, ±½, which is thrown away."""
    while True:
        doubled = [[stream.choice((-2, -1, 1, 2)) for _ in range(d)] for _ in range(d)]
        if sum(doubled[i][i] for i in range(d)) == 2 * trace:
            break
    up, down = stream.rows(m, d, largest), [stream.vector(d, largest) for _ in range(m)]
    overlaps = [
        sum(a[j] * doubled[j][k] * u[k] for j in range(d) for k in range(d)) for u, a in zip(up, down)
    ]
    return up, [[-x for x in a] if overlap < 0 else a for a, overlap in zip(down, overlaps)]


def draw_decide(stream: Stream) -> dict:
    """Six blocks, d = 4, m = 14, the a_iu_iᵀ independent; for three of them M = -6P_S with seven units,
    for two M is
    outside the span, for one it has the coefficients 2 and -1 on two units.
    """
    kinds = stream.shuffled(["set", "set", "set", "outside", "outside", "coefficients"])
    return {"blocks": [block_to_decide(stream, kind) for kind in kinds]}


def block_to_decide(stream: Stream, kind: str) -> dict:
    d, m = 4, 14
    while True:
        up, down = stream.rows(m, d, 3), [stream.vector(d, 3) for _ in range(m)]
        terms, factors = products(up, down), stream.shuffled([1] * 7 + [0] * 7)
        if kind == "coefficients":
            ones, zeros = ([i for i, f in enumerate(factors) if f == value] for value in (1, 0))
            factors[stream.choice(ones)], factors[stream.choice(zeros)] = 2, -1
        skip = [-6 * sum(f * term[k] for f, term in zip(factors, terms)) for k in range(d * d)]
        if kind == "outside":
            skip[stream.randrange(d * d)] += stream.choice((-6, 6))
        within = rank([*terms, skip]) == m
        if rank(terms) == m and within == (kind != "outside"):
            return {"up": up, "down": down, "skip": [skip[i * d : (i + 1) * d] for i in range(d)]}


def draw_spare(stream: Stream) -> dict:
    """A vector of two different nonzero entries up to 7 that have no common factor."""
    while True:
        w = [stream.choice((1, -1)) * stream.randint(2, 7) for _ in range(2)]
        if rank([w, [1, 1]]) == 2 and rank([w, [1, -1]]) == 2 and w[0] % 2 + w[1] % 2:
            return {"w": w}


# --- problem set 2 -----------------------------------------------------------------------------


def draw_gate(stream: Stream) -> dict:
    """M of rank 3, entries from -5 to 5, none zero."""
    while True:
        M = [[stream.choice((1, -1)) * stream.randint(1, 5) for _ in range(3)] for _ in range(3)]
        if rank(M) == 3:
            return {"M": M}


def draw_leaky_gelu(stream: Stream) -> dict:
    """d = 3, m = 8, M = -3P_S for one set S of four units, the a_iu_iᵀ independent, all biases nonzero."""
    while True:
        up, down = stream.rows(8, 3, 3), [stream.vector(3, 3) for _ in range(8)]
        if rank(products(up, down)) == 8:
            S = stream.sample(range(8), 4)
            M = [-3 * int(x) for x in total(up, down, S)]
            bias = [stream.choice((1, -1)) * stream.randint(1, 4) for _ in range(8)]
            v = stream.vector(3, 5)
            return {"up": up, "bias": bias, "down": down, "skip": [M[i : i + 3] for i in (0, 3, 6)], "v": v}


def draw_difference(stream: Stream) -> dict:
    """Eight units that agree after four of them are turned, and one hidden unit that is alive only in a
    cone about the line {q·x = r·x = 0}: less than a millionth of all directions (1/1000 in two of them),
    whose axis has p·x > 0.
    """
    while True:
        q, r, p = (stream.vector(3, 9) for _ in range(3))
        axis = [q[1] * r[2] - q[2] * r[1], q[2] * r[0] - q[0] * r[2], q[0] * r[1] - q[1] * r[0]]
        if min(map(abs, axis)) < 5 or not sum(x * y for x, y in zip(p, axis)):
            continue
        up = stream.rows(6, 3, 4)
        up += [[-x for x in map(sum, zip(up[0], up[1]))], [-x for x in map(sum, zip(up[2], up[3]))]]
        turned = {0, 1, 6} | {
            2,
            3,
            7,
        }  # Σ over each triple of u_i is 0: with equal outputs they can be turned
        out = [3, 3, 2, 2, stream.choice((1, -1)), stream.choice((2, -2)), 3, 2]
        if independent(up):
            cone = [p, q, [-x for x in q], r, [-x for x in r]]
            first = three_layers(stream, up, out, cone)
            other = [[-x for x in u] if i in turned else u for i, u in enumerate(up)]
            return {"first": first, "second": three_layers(stream, other, out, [])}


def three_layers(stream: Stream, up: list, out: list, cone: list) -> list:
    """Σ out_i relu(u_i·x) + relu(relu(p·x) - 1000 (|q·x| + |r·x|)) as three matrices, hidden units
    shuffled.
    """
    order = stream.shuffled(list(range(len(up) + len(cone))))
    first = [(up + cone)[i] for i in order]
    second = [[int(i == j) for i in order] for j in range(len(up))]
    if cone:
        second.append([0 if i < len(up) else 1 if i == len(up) else -1000 for i in order])
        out = [*out, 1]
    second, out = reordered(stream, second, out)
    return [first, second, [out]]


# --- problem set 3 -----------------------------------------------------------------------------


def draw_align(stream: Stream) -> dict:
    """3, 6, 6, 2 units, weights to ±20, noise 1; any two rows, up to sign, differ somewhere by at least 8."""
    while True:
        A = [[stream.vector(n + 1, 20) for _ in range(m)] for n, m in ((3, 6), (6, 6), (6, 2))]
        if not all(apart(layer, 8) for layer in A[:2]):
            continue
        orders = [list(range(3)), stream.shuffled(list(range(6))), stream.shuffled(list(range(6))), [0, 1]]
        signs = [[1] * 3, stream.signs(6), stream.signs(6), [1, 1]]
        B = []
        for layer, rows in enumerate(A):
            columns, factors = [*orders[layer], len(orders[layer])], [*signs[layer], 1]
            B.append(
                [
                    [s * f * rows[unit][c] + stream.randint(-1, 1) for c, f in zip(columns, factors)]
                    for unit, s in zip(orders[layer + 1], signs[layer + 1])
                ]
            )
        if not all(apart(layer, 6) for layer in B[:2]):
            continue
        return {"A": A, "B": B, "noise": 1}


def apart(rows: list, least: int) -> bool:
    """Whether no row is near another or its negative, nor near its own."""
    differences = [[x - s * y for x, y in zip(u, v)] for u, v in combinations(rows, 2) for s in (1, -1)]
    return min(max(map(abs, row)) for row in [*differences, *([2 * x for x in u] for u in rows)]) >= least


def draw_fewer(stream: Stream) -> dict:
    """d = 2, three outputs, 6 units that can be 4: two are turned, and a pair of opposite units makes up
    for it.
    """
    while True:
        core, bias = stream.rows(4, 2, 4), stream.vector(4, 4)
        w = [x + y for x, y in zip(core[2], core[3])]
        a = stream.vector(3, 4)
        down = [stream.vector(3, 4), stream.vector(3, 4), a, a]
        if not any(w) or not independent([*core, w]):
            continue
        beta = bias[2] + bias[3]
        up = [*core[:2], [-x for x in core[2]], [-x for x in core[3]], w, [-x for x in w]]
        biases = [*bias[:2], -bias[2], -bias[3], beta, -beta]
        columns = [*down, a, [-x for x in a]]
        up, biases, columns = reordered(stream, up, biases, columns)
        return {"up": up, "bias": biases, "down": columns, "out": stream.vector(3, 4)}


def draw_equivariant_maps(stream: Stream) -> dict:
    """ρ has a cycle of 3 with sign +, one of 2 with sign -; ρ' one of 2 with +, one of 2 with -: three
    maps, for all.
    """
    rho = signed_cycles(stream, [(3, 1), (2, -1)])
    rho_out = signed_cycles(stream, [(2, 1), (2, -1)])
    assert commuting(rho, rho_out) == 3
    return {"rho": rho, "rho_out": rho_out}


def signed_cycles(stream: Stream, cycles: list[tuple[int, int]]) -> list[list[int]]:
    """A signed permutation matrix with cycles of these lengths and products of signs, in random
    coordinates.
    """
    places = stream.shuffled(list(range(sum(length for length, _ in cycles))))
    matrix = [[0] * len(places) for _ in places]
    while cycles:
        (length, sign), *cycles = cycles
        cycle, places = places[:length], places[length:]
        signs = stream.signs(length - 1)
        for i, s in enumerate([*signs, sign * (-1) ** signs.count(-1)]):
            matrix[cycle[(i + 1) % length]][cycle[i]] = s
    return matrix


# --- problem set 4 -----------------------------------------------------------------------------

TURN, MIRROR = [1, 2, 3, 0], [1, 0, 3, 2]  # of the corners 0, 1, 2, 3 of a square, in order round it


def draw_latent_action(stream: Stream) -> dict:
    """Four corners, 8 units: the orbit of one row, entries to ±20, under the square's group, each unit
    with a sign of
    its own, then noise 1.  Rows differ from each other, up to sign, somewhere by at least 8.
    """
    while True:
        row, column = stream.vector(4, 20), stream.vector(4, 20)
        orbit = [list(range(4))]
        for g in orbit:
            orbit += [n for n in ([g[i] for i in TURN], [g[i] for i in MIRROR]) if n not in orbit]
        order, signs = stream.shuffled(orbit), stream.signs(8)
        W1 = [[s * row[i] for i in g] for g, s in zip(order, signs)]
        W2 = [[s * column[i] for i in g] for g, s in zip(order, signs)]
        noisy = [[[x + stream.randint(-1, 1) for x in unit] for unit in layer] for layer in (W1, W2)]
        if apart(noisy[0], 8):
            names = stream.shuffled(list(range(4)))  # the corners' places in the vector
            first = [[unit[i] for i in names] for unit in noisy[0]]
            second = [[unit[i] for unit in noisy[1]] for i in names]
            r, s = ([names.index(g[i]) for i in names] for g in (TURN, MIRROR))
            return {"W1": first, "W2": second, "r": r, "s": s, "noise": 1}


def draw_layerwise(stream: Stream) -> dict:
    """Three inputs shifted round, the orbit of one row; 3 + 2 + 1 units on its three lines, their outputs
    split so that
    no two are equal, with signs.  Two outputs.
    """
    while True:
        u, b, a = stream.vector(3, 5), stream.choice((1, -1)) * stream.randint(1, 5), stream.vector(2, 6)
        orbit = [u, u[1:] + u[:1], u[2:] + u[:2]]
        if not independent(orbit) or min(map(abs, a)) == 0:
            continue
        parts = [stream.vector(2, 6) for _ in range(3)]
        left = [[x - y - z for x, y, z in zip(a, parts[0], parts[1])], [x - y for x, y in zip(a, parts[2])]]
        columns = [parts[0], parts[1], left[0], parts[2], left[1], a]
        if all(map(any, columns)) and len({*map(tuple, columns)}) == 6:
            signs = stream.signs(6)
            lines = [orbit[i] for i in stream.sample(range(3), 3)]
            rows = [lines[0]] * 3 + [lines[1]] * 2 + [lines[2]]
            W1 = [[s * x for x in row] for s, row in zip(signs, rows)]
            columns = [[s * x for x in column] for s, column in zip(signs, columns)]
            W1, columns, biases = reordered(stream, W1, columns, [s * b for s in signs])
            return {"W1": W1, "b": biases, "W2": [list(row) for row in zip(*columns)], "shift": [1, 2, 0]}


def draw_heads(stream: Stream) -> dict:
    """d = 4, three heads of key and value width 2: two attend alike in different coordinates, and their
    values read the same plane; the third has QᵀK of rank 1.  Two heads with key widths 2 + 1 and value
    widths 2 + 2 are least.
    """
    while True:
        Q, K, V, third = (stream.rows(2, 4, 2) for _ in range(4))
        G, H = stream.unimodular(2, 2), stream.unimodular(2, 2)
        back = [list(column) for column in zip(*solve_left([[1, 0], [0, 1]], G))]  # G⁻ᵀ
        O = [stream.rows(4, 2, 3) for _ in range(3)]
        q, k = stream.vector(4, 2), stream.vector(4, 2)
        s, t = stream.rows(2, 2, 2)
        made = [
            {"Q": Q, "K": K, "V": V, "O": O[0]},
            {"Q": multiplied(G, Q), "K": multiplied(back, K), "V": multiplied(H, V), "O": O[1]},
            {
                "Q": [[x * e for e in q] for x in s],
                "K": [[x * e for e in k] for x in t],
                "V": third,
                "O": O[2],
            },
        ]
        merged = [[x + y for x, y in zip(*rows)] for rows in zip(O[0], multiplied(O[1], H))]
        kinds = sum(x * y for x, y in zip(s, t)), rank(merged), rank(O[2])
        if (
            kinds[0]
            and kinds[1:] == (2, 2)
            and all(
                max(abs(x) for row in head["Q"] + head["K"] + head["V"] for x in row) <= 9 for head in made
            )
        ):
            return {"heads": stream.shuffled(made)}


def multiplied(A: list, B: list) -> list[list[int]]:
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*B)] for row in A]


draw_not_layerwise = draw_spare


# --- problem set 5 -----------------------------------------------------------------------------


def draw_width(stream: Stream) -> dict:
    """d = 3, m = 5, rank 3; d = 4, m = 2; d = 3 and m = 3 rows of rank 2.  M is invertible, entries to
    ±4, and M + P_S is
    invertible for every S, so that the widths 8, 8 and 7 are least.
    """
    blocks = []
    for d, m, r in ((3, 5, 3), (4, 2, 2), (3, 3, 2)):
        while True:
            M, up = [stream.vector(d, 4) for _ in range(d)], stream.rows(m, d, 3)
            down = [stream.vector(d, 3) for _ in range(m)]
            terms = products(up, down)
            sums = (
                [
                    x + sum(t[k] for i, t in enumerate(terms) if S >> i & 1)
                    for k, x in enumerate(x for row in M for x in row)
                ]
                for S in range(2**m)
            )
            if rank(up) == r and all(determinant([p[i * d : i * d + d] for i in range(d)]) for p in sums):
                break
        blocks.append({"up": up, "down": down, "skip": M, "width": m + 2 * d - r})
    return {"blocks": blocks}


def draw_stack(stream: Stream) -> dict:
    """Three blocks, d = 5, m = 24: a planted Y of trace 3 with entries ±1, ±½ has the bound 3; 2 is
    asked.  Y = I
    proves nothing.
    """
    blocks: list[dict] = []
    while len(blocks) < 3:
        up, down = planted_certificate(stream, 5, 24, 2, 3)
        if 5 + sum(min(0, sum(x * y for x, y in zip(u, a))) for u, a in zip(up, down)) <= 0:
            blocks.append({"up": up, "down": down})
    return {"blocks": blocks, "beta": 2}


# --- problem set 6 -----------------------------------------------------------------------------


def draw_near(stream: Stream) -> dict:
    """d = 2, m = 26: a planted set of six units misses -I by 0.01 to 0.03 in one entry or two; the a_i,
    in hundredths,
    have entries to ±150, planted or not.
    """
    goal = [[-100 * (i == j) for j in range(2)] for i in range(2)]
    up, down = adding_up(stream, goal, 6, rows=3, columns=150, most=149)
    down[0][stream.randrange(2)] += stream.choice((1, -1))
    others = stream.rows(20, 2, 5, besides=up)
    up, down = reordered(stream, up + others, down + [stream.vector(2, 150) for _ in others])
    return {"up": up, "down": down, "goals": ["0.5", "0.25", "0.1", "0.03"]}
