"""What arguments must be: numbers with a range, and annotations that hold at run time.

Whoever calls a public function of the library with what its annotations exclude gets an error that begins
with the argument's name: TypeError for another type, ValueError for another shape or a number out of range.
A module needs nothing for that but its annotations; ``@typing.no_type_check`` takes a function out.  What the
library passes to itself is looked at only where it makes an object.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import is_dataclass
from functools import cache, wraps
from inspect import Parameter
from types import CodeType, ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, SupportsIndex, Union, get_args, get_origin, get_type_hints

from beartype import BeartypeConf, FrozenDict
from beartype.door import is_bearable
from beartype.vale import Is, IsInstance
from jaxtyping import AbstractArray, jaxtyped, print_bindings

LARGEST = sys.float_info.max

Count = Annotated[int, Is[lambda n: n >= 1]]
Natural = Annotated[int, Is[lambda n: n >= 0]]
Seed = Annotated[int, Is[lambda n: -(2**63) <= n < 2**64]]
Finite = Annotated[float, Is[lambda x: abs(x) <= LARGEST]]
Positive = Annotated[float, Is[lambda x: 0 < x <= LARGEST]]
NonNegative = Annotated[float, Is[lambda x: 0 <= x <= LARGEST]]
Share = Annotated[float, Is[lambda x: 0 <= x <= 1]]

IN_WORDS: dict[Any, str] = {
    Count: "an integer of at least 1",
    Natural: "an integer of at least 0",
    Seed: "an integer of at most 64 bits",
    Finite: "a finite number",
    Positive: "a positive number",
    NonNegative: "a number of at least 0",
    Share: "a number from 0 to 1",
    int: "an integer",
    float: "a number",
    SupportsIndex: "an integer",
    bool: "True or False",
    str: "a string",
    NoneType: "None",
}

# True is no number here, and of a list beartype looks at the first entry, not at a random one
_NOT_BOOL = ~IsInstance[bool]
_NUMBERS = {int: Annotated[int, _NOT_BOOL], float: Annotated[float, _NOT_BOOL] | Annotated[int, _NOT_BOOL]}
_CONF = BeartypeConf(is_random=False, hint_overrides=FrozenDict(_NUMBERS))


def _fits(value: Any, hint: Any) -> bool:
    return is_bearable(value, hint, conf=_CONF)


# --- where the annotations hold ---------------------------------------------------------------------


class Enforcer:
    """A finder for ``sys.meta_path``: what others find of ``package``, with its annotations enforced."""

    def __init__(self, package: str) -> None:
        self.prefix = f"{package}."

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith(self.prefix) or name == __name__:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                enforce(module)

            spec.loader.exec_module = exec_module
        return spec


def enforce(module: ModuleType) -> None:
    """Hold every public function of the module, and those of its public classes, to its annotations."""
    for name, value in list(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            for key, member in list(vars(value).items()):
                if key in ("__init__", "__call__") or not key.startswith("_"):
                    setattr(value, key, _enforced(member, value))
        else:
            setattr(module, name, _enforced(value))


def _enforced(member: Any, owner: type | None = None) -> Any:
    if isinstance(member, (classmethod, staticmethod)):
        return type(member)(_enforced(member.__func__))
    is_function = inspect.isfunction(member) or hasattr(member, "cache_info")
    if not is_function or hasattr(member, "__no_type_check__") or not {*member.__annotations__} - {"return"}:
        return member
    return _checking(member, owner)


def _checking(function: Callable, owner: type | None) -> Callable:
    """The function, which looks at its arguments if it makes an object or is called from outside."""
    inside, makes_an_object = f"{__package__}.", function.__name__ == "__init__"
    # what a dataclass inherits is annotated with the names of another module
    annotated = owner if makes_an_object and is_dataclass(owner) else function
    look: Callable[..., Exception | None] | None = None

    @wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # notebooks and pytest show the call
        if makes_an_object or not sys._getframe(1).f_globals.get("__name__", "").startswith(inside):
            nonlocal look
            look = look or _look(function, annotated)  # not earlier: modules may name each other's classes
            error = look(args, kwargs)
            if error is not None:
                raise error
        return function(*args, **kwargs)

    return checking


def _look(function: Callable, annotated: Any) -> Callable[[tuple, dict[str, Any]], Exception | None]:
    """What finds the first of the function's arguments that is not what the annotations say."""
    signature, hints = inspect.signature(function), get_type_hints(annotated, include_extras=True)
    kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
    rest, others = (kinds.get(kind, "") for kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD))
    if rest in hints:
        hints[rest] = tuple[hints[rest], ...]

    def look(args: tuple, kwargs: dict[str, Any]) -> Exception | None:
        arguments = signature.bind_partial(*args, **kwargs).arguments  # what is missing, the function says
        given = arguments | arguments.pop(others, {})
        with jaxtyped("context"):  # sizes of one name agree
            for name, value in given.items():
                hint = hints.get(name if name in signature.parameters else others, Any)
                if shape := _shape(hint):
                    hint = _of_shape(hint, eval(shape, {}, given))
                for misfit in _misfits(name, value, hint):
                    return _error(*misfit)
        return None

    return look


# --- hints ------------------------------------------------------------------------------------------


def _is_array(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, AbstractArray)


def _in_union(change: Callable[[Any], Any], hint: Any) -> Any:
    """The union of the changed hints; a hint that is no union stays."""
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(map(change, get_args(hint)))]  # noqa: UP007
    return hint


@cache
def _shape(hint: Any) -> CodeType | None:
    """The code of a shape with {self.dim_in} and the like."""
    for array in filter(_is_array, (hint, *get_args(hint))):
        if "{" in array.dim_str:
            return compile(f"f{array.dim_str!r}", "<annotation>", "eval")
    return None


@cache
def _of_shape(hint: Any, shape: str) -> Any:
    """The hint with another shape."""
    if _is_array(hint):
        return hint.dtype[hint.array_type, shape]
    return _in_union(lambda one: _of_shape(one, shape), hint)


@cache
def _of_entries(hint: Any, kind: type) -> Any:
    """X for Sequence[X] and tuple[X, ...], or for Mapping[K, X] if ``kind`` is dict; also in a union."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return next((x for one in arguments if (x := _of_entries(one, kind)) is not Any), Any)
    if not inspect.isclass(origin):
        return Any
    if origin is tuple:
        return arguments[0] if arguments[1:] == (...,) else Any
    return arguments[-1] if len(arguments) == (2 if kind is dict else 1) else Any


def _loose(hint: Any) -> Any:
    """The types that a hint allows, whatever the shape or the value."""
    if _is_array(hint):
        return hint.dtype[hint.array_type, "..."]
    if get_origin(hint) is Literal:
        return Union[tuple(map(type, get_args(hint)))]  # noqa: UP007
    return _loose(get_args(hint)[0]) if get_origin(hint) is Annotated else _in_union(_loose, hint)


def _misfits(name: str, value: Any, hint: Any) -> Iterator[tuple[str, Any, Any]]:
    """Entries of a list, tuple or dictionary, or the value, that are not what the hint says."""
    if isinstance(value, (list, tuple, dict)) and (inner := _of_entries(hint, type(value))) is not Any:
        for at, entry in value.items() if isinstance(value, dict) else enumerate(value):
            if not _fits(entry, inner):
                yield f"{name}[{at!r}]", entry, inner
    if not _fits(value, hint):
        yield name, value, hint


# --- words ------------------------------------------------------------------------------------------


def _error(name: str, value: Any, hint: Any) -> Exception:
    kind = ValueError if _fits(value, _loose(hint)) else TypeError
    return kind(f"{name} must be {_need(hint)}, got {_what(value)}")


def _need(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in IN_WORDS:
        return IN_WORDS[hint]
    if origin in (Union, UnionType):
        return " or ".join(map(_need, sorted(inner, key=lambda one: one is not NoneType)))
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin is tuple and inner[1:] != (...,):
        return f"a tuple ({', '.join(map(_need, inner))})"
    if _is_array(hint):
        return _array_in_words(hint)
    return _with_article(str(getattr(origin or hint, "__name__", hint)))


def _array_in_words(hint: Any) -> str:
    dims = hint.dim_str.split()
    with redirect_stdout(io.StringIO()) as bound:
        print_bindings()
    sizes = [f"{n} = {size}" for n, size in re.findall(r"^(\w+)=(\d+)$", bound.getvalue(), re.M) if n in dims]
    shape = f"({dims[0]},)" if len(dims) == 1 else f"({', '.join(dims)})"
    dtype = "floating" if hint.dtype.__name__ == "Float" else hint.dtype.__name__.lower()
    array = f"{hint.array_type.__module__}.{hint.array_type.__name__}"
    return f"{_with_article(dtype)} {array} of shape {shape}{' with ' * bool(sizes)}{', '.join(sizes)}"


def _with_article(name: str) -> str:
    vowel = name[0] in ("AEFHILMNORSX" if name[:2].isupper() else "AEIOUaeiou")
    return f"{'an' if vowel else 'a'} {name}"


def _what(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {value.dtype} {type(value).__name__} of shape {tuple(value.shape)}"
    plain = (NoneType, bool, int, float, complex, str, list, tuple, set, dict)
    return repr(value) if isinstance(value, plain) and len(repr(value)) < 60 else type(value).__name__
