"""What arguments must be: numbers with a range, and annotations that hold at run time.

Whoever calls a public function of the library with what its annotations exclude gets an error that begins
with the argument's name: TypeError for another type, ValueError for another shape or a number out of range.
A module needs nothing for that but its annotations; ``@typing.no_type_check`` takes a function out.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import is_dataclass
from functools import wraps
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, SupportsIndex, Union, get_args, get_origin, get_type_hints

from beartype import BeartypeConf, FrozenDict
from beartype.door import is_bearable
from beartype.vale import Is, IsInstance
from jaxtyping import AbstractArray, jaxtyped, print_bindings
from torch import Tensor

LARGEST = sys.float_info.max
_Kind = type(inspect.Parameter.KEYWORD_ONLY)

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
    Tensor: "a torch.Tensor",
    NoneType: "None",
}

# True is no number here, and of a list beartype looks at the first entry, not at a random one
_NOT_BOOL = ~IsInstance[bool]
_CONF = BeartypeConf(
    is_random=False,
    hint_overrides=FrozenDict(
        {int: Annotated[int, _NOT_BOOL], float: Annotated[float, _NOT_BOOL] | Annotated[int, _NOT_BOOL]}
    ),
)


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
    # what a dataclass inherits is annotated with the names of another module
    fields = member.__name__ == "__init__" and is_dataclass(owner)
    return _checking(member, owner if fields else member)


def _checking(function: Callable, annotated: Any) -> Callable:
    """The function, which first looks at its arguments."""
    look: Callable[..., Exception | None] | None = None

    @wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # notebooks and pytest show the call
        nonlocal look
        look = look or _look(function, annotated)  # not earlier: modules may name each other's classes
        error = look(*args, **kwargs)
        if error is not None:
            raise error
        return function(*args, **kwargs)

    return checking


def _look(function: Callable, annotated: Any) -> Callable[..., Exception | None]:
    """What finds the first of the function's arguments that is not what the annotations say."""
    signature, hints = inspect.signature(function), get_type_hints(annotated, include_extras=True)
    of_kind = {kind: [p.name for p in signature.parameters.values() if p.kind is kind] for kind in _Kind}
    positional = of_kind[_Kind.POSITIONAL_ONLY] + of_kind[_Kind.POSITIONAL_OR_KEYWORD]
    wanted = dict.fromkeys(signature.parameters, (Any, Any))
    wanted |= {name: (hint, _of_entries(hint)) for name, hint in hints.items()}
    for rest in of_kind[_Kind.VAR_POSITIONAL]:
        wanted[rest] = tuple[wanted[rest][0], ...], wanted[rest][0]
    others = next((wanted[name] for name in of_kind[_Kind.VAR_KEYWORD]), (Any, Any))
    order = {name: i for i, name in enumerate(signature.parameters)}
    defaults = {p.name: p.default for p in signature.parameters.values()}

    def first_error(*args: Any, **kwargs: Any) -> Exception | None:
        # one too many, missing or unknown: the function itself says so
        arguments = dict(zip(positional, args)) | kwargs
        for rest in of_kind[_Kind.VAR_POSITIONAL]:
            arguments[rest] = args[len(positional) :]
        for name in sorted(arguments, key=lambda n: order.get(n, len(order))) if kwargs else arguments:
            for misfit in _misfits(name, arguments[name], *wanted.get(name, others)):
                return _error(*misfit, defaults | arguments)
        return None

    if "jaxtyping" not in repr(hints):
        return first_error
    variadic = (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD)
    optional = [p if p.kind in variadic else p.replace(default=None) for p in signature.parameters.values()]
    first_error.__signature__ = signature.replace(parameters=optional)  # pyright: ignore[reportFunctionMemberAccess]
    return jaxtyped(first_error, typechecker=None)  # sizes of one name agree; {self.dim_in} is known


def _misfits(name: str, value: Any, hint: Any, inner: Any) -> Iterator[tuple[str, Any, Any]]:
    """The value, or entries of a list, tuple or dictionary, that are not what the hints say."""
    if not is_bearable(value, hint, conf=_CONF):
        yield name, value, hint
    elif inner is not Any and isinstance(value, (list, tuple, dict)):
        for at, entry in value.items() if isinstance(value, dict) else enumerate(value):
            if not is_bearable(entry, inner, conf=_CONF):
                yield f"{name}[{at!r}]", entry, inner


def _of_entries(hint: Any) -> Any:
    """X for Sequence[X], tuple[X, ...] or Mapping[K, X], also in a union."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return next((inner for inner in map(_of_entries, arguments) if inner is not Any), Any)
    if get_origin(hint) is tuple:
        return arguments[0] if arguments[1:] == (...,) else Any
    return arguments[-1] if inspect.isclass(get_origin(hint)) and len(arguments) < 3 else Any


def _error(name: str, value: Any, hint: Any, arguments: dict[str, Any]) -> Exception:
    kind = ValueError if is_bearable(value, _loose(hint), conf=_CONF) else TypeError
    return kind(f"{name} must be {_need(hint, arguments)}, got {_what(value)}")


def _loose(hint: Any) -> Any:
    """The types that a hint allows, whatever the shape or the value."""
    if _is_array(hint):
        return hint.dtype[hint.array_type, "..."]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return Union[tuple(map(_loose, arguments))]  # noqa: UP007
    if origin is Literal:
        return Union[tuple(map(type, arguments))]  # noqa: UP007
    return _loose(arguments[0]) if origin is Annotated else hint


def _need(hint: Any, arguments: dict[str, Any]) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in IN_WORDS:
        return IN_WORDS[hint]
    if origin in (Union, UnionType):
        return " or ".join(
            _need(one, arguments) for one in sorted(inner, key=lambda one: one is not NoneType)
        )
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if _is_array(hint):
        return _array_in_words(hint, arguments)
    if origin is tuple and inner[1:] != (...,):
        return f"a tuple ({', '.join(_need(one, arguments) for one in inner)})"
    return _with_article(getattr(origin or hint, "__name__", str(hint)))


def _is_array(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, AbstractArray)


def _array_in_words(hint: Any, arguments: dict[str, Any]) -> str:
    dims = [str(eval(f"f{dim!r}", dict(arguments))) for dim in hint.dim_str.split()]  # as jaxtyping does it
    with redirect_stdout(io.StringIO()) as bound:
        print_bindings()
    sizes = [f"{n} = {size}" for n, size in re.findall(r"^(\w+)=(\d+)$", bound.getvalue(), re.M) if n in dims]
    shape = f"({dims[0]},)" if len(dims) == 1 else f"({', '.join(dims)})"
    dtype = {"Float": "floating"}.get(hint.dtype.__name__, hint.dtype.__name__.lower())
    return f"{_with_article(dtype)} torch.Tensor of shape {shape}{' with ' * bool(sizes)}{', '.join(sizes)}"


def _with_article(name: str) -> str:
    vowel = name[0] in ("AEFHILMNORSX" if name[:2].isupper() else "AEIOUaeiou")
    return f"{'an' if vowel else 'a'} {name}"


def _what(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {value.dtype} {type(value).__name__} of shape {tuple(value.shape)}"
    plain = (NoneType, bool, int, float, complex, str, list, tuple, set, dict)
    return repr(value) if isinstance(value, plain) and len(repr(value)) < 60 else type(value).__name__
