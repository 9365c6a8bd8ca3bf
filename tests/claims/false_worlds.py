"""False worlds: what is changed in the library or in mathematics, and which evidence must notice it.

A sabotage is a function that takes a :class:`World` and makes something false in it.  Those of a claim
stand in ``sabotages/``, in a module of the claim's name; ``test_sabotages`` runs them.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from samefn import activations

HERE = Path(__file__).parent / "sabotages"


@dataclass(frozen=True)
class World:
    """The library, to be made false for one test; everything is put back after it."""

    monkeypatch: pytest.MonkeyPatch

    def replace(self, original: object, other: object) -> None:
        """Put ``other`` wherever a module of the library holds ``original``, also under another name."""
        bound = [
            (module, name)
            for key, module in sys.modules.items()
            if key.split(".")[0] == "samefn"
            for name, value in vars(module).items()
            if value is original
        ]
        assert bound, f"no module of the library holds {original}"
        for module, name in bound:
            self.monkeypatch.setattr(module, name, other)

    def wrap(self, original: Callable, change: Callable) -> None:
        """Let ``change`` have what ``original`` returns, and return something else."""
        self.replace(original, lambda *args, **kwargs: change(original(*args, **kwargs)))

    def method(self, owner: type, name: str, other: object) -> None:
        """Give a class another method."""
        self.monkeypatch.setattr(owner, name, other)

    def activation(self, name: str, **changes: object) -> None:
        """Change what the catalogue says of one activation, its function and expression included."""
        other = replace(activations.CATALOGUE[name], **changes)
        self.monkeypatch.setitem(activations.CATALOGUE, name, other)


@dataclass(frozen=True)
class Sabotage:
    """``world`` says what is false; the checks named ``caught_by`` are the evidence that must notice."""

    claim: str
    world: str
    caught_by: tuple[str, ...]
    install: Callable[[World], None]


SABOTAGES: list[Sabotage] = []


def sabotage(claim: str, world: str, *caught_by: str) -> Callable:
    """Enter the decorated function as a sabotage of that claim."""

    def enter(install: Callable[[World], None]) -> Callable[[World], None]:
        SABOTAGES.append(Sabotage(claim, world, caught_by, install))
        return install

    return enter


def collect() -> list[Sabotage]:
    """All sabotages, from all modules of ``sabotages/``."""
    for path in sorted(HERE.rglob("*.py")):
        importlib.import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))
    return SABOTAGES
