"""Checks of the state that an algorithm keeps: listed, moving with the module, single precision."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plench.contract.base import BreachError, NotCheckedError, advised, needs_batches, required
from plench.contract.basics import train_and_predict
from plench.contract.reach import walk
from plench.contract.subject import Session, Subject
from plench.training.state import list_state


def reach_tensors(session: Session) -> dict[str, Tensor]:
    """Return all tensors of an algorithm by path, optimisers and transient attributes aside."""
    root = session.algorithm
    return {
        path: value
        for path, value in walk(root, type(root).__name__, for_state=True)
        if isinstance(value, Tensor)
    }


@required
def lists_its_state(subject: Subject) -> None:
    """All state kept beside the weights is found, so that run.json can list it with its memory."""
    session = subject.start()
    session.update(1)
    kept = {
        path: value.numel() * value.element_size()
        for path, value in reach_tensors(session).items()
        if not isinstance(value, nn.Parameter) and value._base is None and not path.endswith(".grad")
    }
    listed = sum(row["bytes"] for row in list_state(session.algorithm))
    if listed < sum(kept.values()):
        largest = max(kept, key=lambda path: kept[path])
        raise BreachError(
            f"{listed} bytes of state are found on the modules but {sum(kept.values())} are kept (the "
            f"largest is {largest}): keep tensors as buffers (register_buffer, self.per_example)"
        )


@advised
def moves_with_the_module(subject: Subject) -> None:
    """`to(device)` moves all state: tensors are parameters or buffers (`register_buffer`, `per_example`), not
    plain attributes."""
    needs_batches(subject)
    session = subject.start()
    session.algorithm.to("meta")
    left = [path for path, tensor in reach_tensors(session).items() if tensor.device.type != "meta"]
    if left:
        raise BreachError(
            f"after to('meta') these stayed behind: {', '.join(left)}. Keep them as buffers, e.g. "
            "self.per_example('confidence', values)"
        )


@advised
def keeps_single_precision(subject: Subject) -> None:
    """State is float32 or smaller: float64 doubles the memory, slows the step, and MPS devices have none."""
    needs_batches(subject)
    session = subject.start()
    session.update(1)
    double = [path for path, tensor in reach_tensors(session).items() if tensor.dtype == torch.float64]
    if double:
        raise BreachError(f"float64: {', '.join(double)}")


@required
def trains_on_accelerators(subject: Subject) -> None:
    """It trains on CUDA and MPS devices, where there are any."""
    kinds = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    present = [kind for kind, available in kinds.items() if available]
    if not present:
        raise NotCheckedError("this machine has no CUDA or MPS device")
    for kind in present:
        session = subject.start(device=kind)
        train_and_predict(session, subject.count_updates(session))
