"""Plays every conversation of a run through every flow and writes the results to the store.

`runner`: `run`, from spec to run folder. `plan`: trials and partitions. `preflight`: checks and the header of a run,
and what may change on `--resume`.
`player`: one process with its trials, and the stop if the model is unreachable.
`run_state`: open and finished trials, and what a resumed run keeps. `memory_pool`: memories of the trials.
`budget`: estimate and budget. `shards`, `executors`: runs in several processes. `fork`: continues another run.
`observer`: observers that may stop a run. `provider_failures`: turns that failed because of the provider.
"""
