"""The paper's pilot experiment: what is a clean validation set better used for, choosing or training?

Two arms with the same splits and the same number of steps. In the first, true labels of the validation split
choose among configurations, as in the protocol: an ordinary sweep. In the second, the validation examples
join the training split with their true label as the only candidate, and the default configuration is
trained, with nothing chosen. `arms` carries them out, `results` compares them, `figure` draws them.
"""

# Folders of the two arms below the pilot's own.
VALIDATION_ARM = "validation"
TRAINING_ARM = "training"
# Ends the name of data whose validation examples have joined the training split.
SUFFIX = "+validation"
