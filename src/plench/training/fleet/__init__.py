"""Small networks without overhead: a step written by hand, and many runs trained as one stack.

`layers` (forward and backward of the MLP), `adam` (its optimisers), `single` (the step of one run), `stack`
(several runs as one algorithm), `mapped` (losses written for one run), `stacked_batches`, `members` (each
run by itself), `loop` (all of them). Which runs of a sweep are trained as one is said in
`plench.sweeps.fleets`.
"""
