"""False worlds for B-T4.1."""

from functools import cache
from inspect import unwrap

from false_worlds import sabotage

from samefn.claims.equivariance.theorem import extended
from samefn.equivariance import finite
from samefn.equivariance import finite_examples as examples
from samefn.equivariance.layerwise import latent_actions
from samefn.equivariance.redundancy import Reduced, reduce

CENSUS = "two_layers", "three_layers"


def _count_again(world):
    """What was counted in the true world must not answer for a false one."""
    for counted in (examples.census, examples.total):
        world.replace(counted, cache(unwrap(counted)))


@sabotage("B-T4.1", "the latent action is k, not its inverse", "two_layers", "actions_on_cosets")
def no_inverse(world):
    _count_again(world)
    right = finite.DeepModel.latent_actions

    def wrong(self, *args):
        return [tuple(map(finite.inverse, rho)) for rho in right(self, *args)]

    world.method(finite.DeepModel, "latent_actions", wrong)


@sabotage("B-T4.1", "at most one k is enough", *CENSUS, "every_closed_parameter_set")
def existence_is_not_asked(world):
    _count_again(world)
    right = finite.DeepModel.obstructions

    def wrong(self, theta):
        return [(other, k) for other, k in right(self, theta) if k]

    world.method(finite.DeepModel, "obstructions", wrong)


@sabotage("B-T4.1", "at least one k is enough", *CENSUS)
def uniqueness_is_not_asked(world):
    _count_again(world)
    right = finite.DeepModel.obstructions

    def wrong(self, theta):
        return [(other, k) for other, k in right(self, theta) if not k]

    world.method(finite.DeepModel, "obstructions", wrong)


@sabotage("B-T4.1", "θ^g moves the first layer only", *CENSUS, "every_closed_parameter_set")
def one_end_moves(world):
    _count_again(world)
    right = finite.transport
    world.replace(right, lambda theta, a, b: right(theta, a, tuple(range(len(b)))))


@sabotage("B-T4.1", "there are no latent actions but the trivial ones", *CENSUS, "every_closed_parameter_set")
def only_trivial_actions(world):
    _count_again(world)
    right = finite.all_latent_actions

    def trivial(*args):
        still = [[rho for rho in rhos if len(set(rho)) == 1] for rhos in right(*args)]
        return [rhos for rhos, every in zip(still, right(*args), strict=True) if len(rhos) == len(every)]

    world.replace(right, trivial)


@sabotage("B-T4.1", "on the large space id − αα* is left out", "extended_action")
def rest_is_forgotten(world):
    world.replace(extended, lambda alpha, star, small, y: alpha[small[star[y]]])


@sabotage("B-T4.1", "on the large space g acts as its inverse should", "extended_action")
def inverse_on_the_large_space(world):
    world.replace(extended, lambda alpha, star, small, y: extended(alpha, star, finite.inverse(small), y))


@sabotage("B-T4.1", "θ' is the zero network", "units_in_step")
def zero_network(world):
    right = Reduced.embed

    def zero(self):
        layers = right(self).layers
        last = len(layers.weights) - 1
        return self.network.rebuilt(layers.replaced(last, 0 * layers.weights[last], 0 * layers.biases[last]))

    world.method(Reduced, "embed", zero)


@sabotage("B-T4.1", "clones need not move in step: θ' is θ", "units_in_step")
def theta_itself(world):
    def lazy(network, **options):
        found = reduce(network, **options)
        object.__setattr__(found, "embed", lambda: network)
        return found

    world.replace(reduce, lazy)


@sabotage("B-T4.1", "latent matrices are 3 % too large", "units_in_step")
def slopes_off(world):
    def scaled(found):
        for rho in found:
            rho.matrices.mul_(1.03)
        return found

    world.wrap(latent_actions, scaled)
