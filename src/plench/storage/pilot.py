"""How the pilot experiment's folder is laid out, for those who write it and those who read it."""

# Folders of the two arms below the pilot's own.
VALIDATION_ARM = "validation"
TRAINING_ARM = "training"
# Ends the name of data whose validation examples have joined the training split.
SUFFIX = "+validation"
