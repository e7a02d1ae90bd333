"""Checkpoints of a run: whole or not there, the last two kept, and refused when they belong to another run.

Orbax writes each one beside its place and renames it. A digest of every number goes with it, so that a file damaged
later is noticed and not continued from.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from infonce_jax.checks import InputError, positive, refuse
from infonce_jax.fingerprint import differences, digest

__all__ = ["MANIFEST", "CheckpointWarning", "Checkpoints", "Saved", "Store", "open_directory"]

_KEPT = 2
MANIFEST = "run.json"  # says which run a directory of checkpoints belongs to
_PACKAGES = ("infonce-jax", "jax", "jaxlib", "numpy")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the run goes on and the one before it stands."""


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """Where and how often a run saves itself. The same call with the same directory continues, to the same bits.

    Attributes:
        directory: made if missing; one run's alone.
        every: seconds between two checkpoints, > 0; the end of the run is always one.
        skip_damaged: continue from the checkpoint before the newest where that is damaged, instead of refusing.
    """

    directory: Path | str
    every: float = 60.0
    skip_damaged: bool = False

    def __post_init__(self) -> None:
        positive("every", self.every, "seconds between two checkpoints, for example 60")


class Saved(NamedTuple):
    """A block of chains after some steps.

    Attributes:
        step: steps made.
        seconds: wall-clock time they took.
        carry: leaves of the loop's carry, leading axis chains.
        records: what the observers recorded so far, as in `Recorder.records`.
    """

    step: int
    seconds: float
    carry: list[np.ndarray]
    records: list[list[tuple[int, dict[str, np.ndarray]]]]


def open_directory(checkpoints: Checkpoints, description: dict[str, Any], blocks: list[tuple[int, int]]) -> list[Any]:
    """Begin or continue in a directory of checkpoints.

    Args:
        checkpoints: the user's wish.
        description: what the bits of the run depend on, plain JSON types.
        blocks: how a run that begins now would cut its chains.

    Returns:
        The blocks of the run that was begun here, or `blocks`.

    Raises:
        InputError: the directory belongs to another run or other versions, or it cannot be written.
    """
    root = Path(checkpoints.directory)
    manifest = root / MANIFEST
    now = json.loads(json.dumps({"run": description, "versions": _versions()}))
    try:
        if manifest.exists():
            before = json.loads(manifest.read_text())
            _compare(root, before, now)
            return [tuple(block) for block in before["blocks"]]
        root.mkdir(parents=True, exist_ok=True)
        if any(root.glob("chains_*")):
            raise refuse("checkpoints", f"{root} without its {MANIFEST}", "the file that the run wrote there",
                         "restore it, or begin again in another directory")  # fmt: skip
        whole = root / f"{MANIFEST}.{os.getpid()}.new"
        whole.write_text(json.dumps({**now, "blocks": blocks}, indent=1))
        os.replace(whole, manifest)
    except OSError as error:
        raise refuse("checkpoints", f"{root} ({error.strerror or error})", "a directory that can be written",
                     "choose another one") from None  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise refuse("checkpoints", f"a damaged {manifest}", "the file that the run wrote there",
                     "restore it, or begin again in another directory") from None  # fmt: skip
    return blocks


@functools.cache  # reading them from the installation takes longer than a short run's checkpoint
def _versions() -> dict[str, str]:
    return {**{name: version(name) for name in _PACKAGES}, "platform": jax.devices()[0].platform}


def _compare(root: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to continue what would not end with the same bits."""
    if run := differences(before["run"], now["run"]):
        raise refuse("checkpoints", f"{root}, of another run ({run})", "the same run to continue",
                     "repeat its settings, or begin again in another directory")  # fmt: skip
    if moved := differences(before["versions"], now["versions"]):
        raise refuse("checkpoints", f"{root}, written under other versions ({moved})",
                     "the same ones, for the same bits",
                     "install those, or begin again in another directory")  # fmt: skip


class Store:
    """The checkpoints of one block of chains.

    Args:
        checkpoints: the user's wish.
        chains: (first, stop) of the block.
    """

    def __init__(self, checkpoints: Checkpoints, chains: tuple[int, int]) -> None:
        self.root, self.every, self.skip_damaged = (
            Path(checkpoints.directory),
            checkpoints.every,
            checkpoints.skip_damaged,
        )
        self.place = (self.root / f"chains_{chains[0]:09d}_{chains[1]:09d}").absolute()
        self.last_step = -1
        self._manager: Any = None

    def _opened(self) -> Any:
        if self._manager is None:
            from infonce_jax.chains.archive import open_manager  # a second to import: only for those who save

            self._manager = open_manager(self.place, _KEPT)
        return self._manager

    def newest(self) -> Saved | None:
        """The last checkpoint, or None where there is none.

        Raises:
            InputError: it is damaged; the message offers the one before it where that is whole.
        """
        if not self.place.exists():
            return None
        damaged: list[tuple[int, str]] = []
        for step in sorted(self._opened().all_steps(), reverse=True):
            try:
                saved = self._read(step)
            except Exception as error:  # a damaged file can raise anything
                damaged.append((step, _reason(error)))
                continue
            if damaged and not self.skip_damaged:
                raise self._refusal(damaged[0], step)
            for bad, _ in damaged:
                self._manager.delete(bad)
            self.last_step = step
            return saved
        if damaged:
            raise self._refusal(damaged[0], None)
        return None

    def _refusal(self, damaged: tuple[int, str], whole: int | None) -> InputError:
        step, reason = damaged
        mend = (
            f"the one before it, of step {whole}, is whole: continue from there with skip_damaged"
            if whole is not None
            else "none before it is whole: begin again in another directory"
        )
        return refuse("checkpoints", f"a damaged one of step {step} in {self.place} ({reason})", "a whole one", mend)

    def _read(self, step: int) -> Saved:
        from infonce_jax.chains.archive import Archive

        named = self._opened().restore(step, args=Archive())
        meta = json.loads(named.pop("meta").tobytes())
        arrays = [named[f"a{i}"] for i in range(len(named))]
        if digest(arrays) != meta["digest"]:
            raise ValueError("its numbers do not have the digest they were written with")
        rest = iter(arrays[meta["carry"] :])
        records = [[(moment, {name: next(rest) for name in names}) for moment, names in observer]
                   for observer in meta["records"]]  # fmt: skip
        return Saved(step, meta["seconds"], arrays[: meta["carry"]], records)

    def save(self, saved: Saved) -> None:
        """Write a checkpoint; where that fails, warn and leave the ones before as they are."""
        arrays = [*saved.carry]
        for observer in saved.records:
            for _, values in observer:
                arrays.extend(values.values())
        meta = {
            "seconds": saved.seconds,
            "carry": len(saved.carry),
            "records": [[(int(moment), list(values)) for moment, values in observer] for observer in saved.records],
            "digest": digest(arrays),
        }
        named = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
        named |= {f"a{i}": array for i, array in enumerate(arrays)}
        try:
            from infonce_jax.chains.archive import Archive

            if not (self.root / MANIFEST).exists():  # Orbax would make a new one, that nobody could continue from
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            self._opened().save(saved.step, args=Archive(named))
            self.last_step = saved.step
        except Exception as error:  # full disk, lost directory, lost rights: none may cost what is in memory
            self._manager = None
            for begun in self.place.glob(f"{saved.step}.*tmp*"):  # a full disk needs the room
                shutil.rmtree(begun, ignore_errors=True)
            stands = f"that of step {self.last_step} stands" if self.last_step >= 0 else "there is none before it"
            warnings.warn(
                f"the checkpoint of step {saved.step} in {self.place} could not be written ({_reason(error)}); "
                f"{stands}; the run goes on", CheckpointWarning, stacklevel=2,
            )  # fmt: skip

    def close(self) -> None:
        """Let go of the files."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None


def _reason(error: BaseException) -> str:
    """What the system says is wrong, without the library's wrapping."""
    text = " ".join(str(error).split())
    known = (errno.ENOSPC, errno.EFBIG, errno.ENOENT, errno.EACCES, errno.EROFS, errno.EDQUOT)
    for number in known:
        if os.strerror(number) in text or getattr(error, "errno", None) == number:
            return os.strerror(number)
    return text[:200] or type(error).__name__
