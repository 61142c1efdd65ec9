"""Plays every conversation of a run through every flow and writes the results to the store.

`runner`: `run`, from spec to run folder. `plan`: trials, partitions and observers that may stop a run. `preflight`:
checks and the header of a run, and what may change on `--resume`.
`player`: one process with its trials, the stop if the model is unreachable, and forks, which continue another run.
`run_state`: open and finished trials, what a resumed run keeps, and turns that failed because of the provider.
`memory_pool`: memories of the trials. `budget`: estimate and budget. `shards`: runs in several processes and on Dask.
"""
