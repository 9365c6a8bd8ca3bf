"""False worlds for A-T8."""

from false_worlds import sabotage

from samefn.skip.absorption import flip


@sabotage("A-T8", "turning a set of units leaves out the last of them", "planted_sets_found")
def one_unit_is_forgotten(world):
    world.replace(flip, lambda block, units: flip(block, list(units)[:-1]))
