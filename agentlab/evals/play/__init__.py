"""Play every conversation of a run through every flow and write the results to the store.

Import `run` from `runner` and `estimate` from `budget`. `shards` splits a run over processes, `fork` plays another
flow from turn N on.
"""
