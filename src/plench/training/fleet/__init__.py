"""Small networks without overhead: a step written by hand, and many runs trained as one stack.

`layers` (forward and backward of the MLP), `adam` (its optimisers), `single` (the step of one run), `stack`
(several runs as one algorithm), `group` (which runs may be stacked), `run` (their loop).
"""
