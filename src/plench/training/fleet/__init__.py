"""Small networks without overhead: a step written by hand, and many runs trained as one stack.

`layers` (forward and backward of the MLP), `adam` (its optimisers), `single` (the step of one run), `stack`
(several runs as one algorithm), `mapped` (losses written for one run), `batches` (theirs), `members`
(each run by itself), `run` (their loop). Which runs of a sweep are trained as one is said in
`plench.sweeps.fleets`.
"""
