"""Part I: can a block absorb its own skip?

``criterion``   the submatrix criterion: solve it for a set of units, or certify that no set solves it
``collect``     redundant units collected, so that one criterion speaks for every block
``deviation``   how far two networks differ: the bound that comes with every "yes"
``absorption``  ``absorb``: the table of theorems, and the verdict on given weights
``width``       what spare units can do, and the least width of a block without a skip
``planted``     blocks that absorb by construction
``families``    which models use which block

The other modules are named after the chapters that they serve.  Nothing is imported here.
"""
