"""TensorBoard as a callback; another tracker takes the same few lines.

plench train -a PRODEN -d Digits_FPS --callback tensorboard_callback.py:TensorBoard
plench sweep launch --suite lite --output-dir runs --callback tensorboard_callback.py:TensorBoard
tensorboard --logdir runs
"""

import sys

from torch.utils.tensorboard import SummaryWriter

import plench


class TensorBoard(plench.Callback):
    """Writes every figure of a record, and the configuration, into the run's folder."""

    def opened(self, folder):
        """Open a writer in the run's folder."""
        self.writer = SummaryWriter(folder / "tensorboard")

    def started(self, config, updates):
        """Write the configuration as text."""
        self.writer.add_text("configuration", str(config.to_json()), updates)

    def evaluated(self, record):
        """Write the figures; text and nested values are left out."""
        for name, value in record.items():
            if isinstance(value, int | float) and name != "step":
                self.writer.add_scalar(name, value, record["step"])

    def ended(self, outcome):
        """Close the writer."""
        self.writer.close()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs"
    options = {"steps": 300, "checkpoint_freq": 50, "callbacks": [TensorBoard()]}
    outcome = plench.train("PRODEN", "Digits_FPS", folder, **options)
    print(outcome.status, len(list((outcome.folder / "tensorboard").iterdir())), "file of events")
