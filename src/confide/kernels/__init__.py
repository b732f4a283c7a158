"""How loops are compiled, and the few machine instructions they need.

`compile` makes kernels and callbacks, `cache` keeps their machine code, `memory` lets one compiled loop serve every
learner, `machine` has the instructions that Numba does not offer.
"""
