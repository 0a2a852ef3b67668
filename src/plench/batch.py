"""What an algorithm sees of the data in one step. There is no field for true labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

VIEWS = ("original", "weak", "strong", "distill")


class Batch:
    """The examples of one step: `index` (B,) into the training split, `candidates` (B, K) bool, and views.

    `weights` (B, K) are those of the candidates, None where all of a set count the same.

    The views an algorithm declares are attributes (`batch.weak`, …). A batch unpacks into the paper's six:
    original, weak and strong view (None where not declared), candidates as floats, None in place of the
    public benchmark's true labels, and index. `second` is the second, independent batch of an algorithm that
    declares one.
    """

    __slots__ = ("_views", "candidates", "index", "second", "weights")

    def __init__(
        self,
        index: Tensor,
        candidates: Tensor,
        views: Mapping[str, Tensor],
        second: Batch | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.index = index
        self.candidates = candidates
        self.second = second
        self.weights = weights
        self._views = views

    def view(self, name: str) -> Tensor:
        """Return a view by name."""
        try:
            return self._views[name]
        except KeyError:
            declared = ", ".join(self._views) or "none"
            raise AttributeError(
                f"the algorithm did not declare the view {name!r} (declared: {declared})"
            ) from None

    @property
    def original(self) -> Tensor:
        """The inputs as they are."""
        return self.view("original")

    @property
    def weak(self) -> Tensor:
        """The weakly augmented inputs."""
        return self.view("weak")

    @property
    def strong(self) -> Tensor:
        """The strongly augmented inputs."""
        return self.view("strong")

    @property
    def distill(self) -> Tensor:
        """The inputs augmented for distillation."""
        return self.view("distill")

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Tensor | None]:
        views = self._views
        yield views.get("original")
        yield views.get("weak")
        yield views.get("strong")
        yield self.candidates.float()
        yield None
        yield self.index
