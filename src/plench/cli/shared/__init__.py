"""What several commands share: options, and the parts of commands that have several."""
