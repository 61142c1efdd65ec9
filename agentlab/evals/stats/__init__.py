"""Statistics on arrays. These modules read no run and import nothing of the package but core.

`intervals`, `statistics`: intervals of means, upper bounds of a loss. `sign_flips`: permutation tests of all measures
together.
`sequential`: tests with several looks, and e-values. `planning`: conversations needed. `agreement`: judge and labels.
"""
