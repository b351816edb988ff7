"""What pydantic found wrong with a spec, in one sentence that names each field."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

# The most numbers that a pin's list may hold.
PINNED_NUMBERS = 16
# Of C and C++ alike: names of kernels become prefixes, and a reader must not take one for the other.
_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
    false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires restrict return short
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true
    try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor
    xor_eq"""
KEYWORDS = frozenset(_KEYWORDS.split())


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The faults that pydantic found, in one sentence that names each field."""
    return "; ".join(dict.fromkeys(_clause(fault, model) for fault in error.errors()))


# What pydantic would say of "valid dictionaries" and "tuples", in the words of a TOML file.
_NEEDS = {
    "bool_type": "must be true or false",
    "dict_type": "must be a table of keys and values",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "invalid_key": "keys must be text",
    "mapping_type": "must be a table of keys and values",
    "model_type": "must be a table of keys and values",
    "string_type": "must be text",
    "string_unicode": "must be text in valid Unicode",
    "tuple_type": "must be a list",
}
_NAME_NEEDS = "is not a name: lower-case letters, digits and '_', a letter first, 40 at most"


def _clause(fault: Any, model: type[BaseModel]) -> str:
    path = [part for part in fault["loc"] if not str(part).startswith(("tuple[", "function-"))]
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if path[-1:] == ["[key]"]:
        need = _NAME_NEEDS if kind == "string_pattern_mismatch" else "is not a text"
        return f"{_field(path[:-2])}: the key {shown(value)} {need}"
    if path[:1] == ["pins"] and len(fault["loc"]) > 3:
        # One fault for each type that the value might have had; they all come to this sentence.
        need = (
            "must be text, true or false, a whole number under 2^31 or a list of such numbers, "
            f"{PINNED_NUMBERS} at most"
        )
        return f"{_field(path[:3])}: {need}"
    field = _field(path)
    match kind:
        case "extra_forbidden":
            known = _known_keys(model, path[:-1])
            near = get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            return f"{_field(path, quoted=True)} is not a known key{hint}"
        case "missing":
            return f"{field} is missing"
        case "literal_error":
            near = get_close_matches(str(value), _choices(context["expected"]), n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"{field} = {shown(value)} is not one of {context['expected']}{hint}"
        case "string_pattern_mismatch":
            return f"{field} = {shown(value)} {_NAME_NEEDS}"
        case "value_error":
            message = str(context.get("error", fault["msg"]))
            return f"{field}: {message}" if field and not message.startswith(field) else message
        case "too_long":
            count, most = context["actual_length"], context["max_length"]
            return f"{field} has {count or f'over {most}'} values; {most} is all"
        case "json_invalid":
            return f"not valid JSON: {context['error']}"
        case "model_type" if not path:
            return f"a spec is a table of keys and values, not {type(value).__name__}"
        case "greater_than_equal":
            return f"{field} = {shown(value)}: must be at least {context['ge']}"
        case "less_than_equal":
            return f"{field} = {shown(value)}: must be at most {context['le']}"
        case _:
            need = _NEEDS.get(kind) or f"{fault['msg'][0].lower()}{fault['msg'][1:]}"
            return f"{field or 'a key'} = {shown(value)}: {need}"


def _field(path: list[Any], *, quoted: bool = False) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
    # Keys come from a file: one that would break the line is shown escaped.
    odd = not text.isprintable() or len(text) >= 60
    return shown(text) if quoted or odd else text


def shown(value: Any) -> str:
    """The value on one line, short enough for a sentence."""
    text = repr(value)
    if len(text) < 60:
        return text
    return (
        f"{text[:40]}...{text[-1]}"
        if isinstance(value, str)
        else f"a value of type {type(value).__name__}"
    )


def _known_keys(model: type[BaseModel], path: list[Any]) -> list[str]:
    owner: Any = model.model_fields[str(path[0])].annotation if path else model
    # A list's items are what its keys belong to.
    owner = next(iter(get_args(owner)), owner)
    return list(owner.model_fields)


def _choices(expected: str) -> list[str]:
    return re.findall(r"'([^']*)'", expected)
