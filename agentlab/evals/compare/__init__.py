"""Paired comparison of flows and runs, the headline, the gate, and the causes of poor turns.

`pairs`: `compare`, all pairs of flows. `paired`: one measure on two sides. `family`: measures tested as one family.
`measure_verdict`: the verdict on one measure. `headline`: the sentence on a run, by the rule of `ship`;
`flow_numbers`: the numbers below it. `best`: the flows without a shown difference from the best.
`gate`: `gate`, with its default margins (of costs: `stats/planning`) and exit codes; `sequential_gate`: the gate
during a run;
`baselines`: baseline files. `claims`: claims such as "B is cheaper and not worse". `slices`: regressions of a slice.
`flips`: turns that crossed .5. `epochs`: repeated runs. `causes`: one cause for each poor turn.
"""
