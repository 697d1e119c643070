"""Run specs: what YAML says, or a dict of the same form, as a message. The message's descriptor is the only list of keys."""
from __future__ import annotations

import copy
import difflib
import os
import re
from typing import Any, Iterable, Mapping, Union

import yaml

from .errors import Invalid
from .pb import spec_pb2

Spec = Union[str, "os.PathLike[str]", Mapping[str, Any]]
Overrides = Union[Mapping[str, Any], Iterable[str]]
WORDS = {"weir.WorkersSpec.stages": {"auto": 0}}


def _wrong(text: str) -> Invalid:
    return Invalid("INVALID_ARGUMENT", text)


def load(spec: Spec) -> tuple[dict[str, Any], str]:
    """A spec as a dict, and the folder that its paths are relative to."""
    if isinstance(spec, Mapping):
        return copy.deepcopy(dict(spec)), os.getcwd()
    path = os.fspath(spec)
    try:
        with open(path, encoding="utf-8") as file:
            read = yaml.safe_load(file)
    except OSError as error:
        raise _wrong(f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise _wrong(f"{path}: not valid YAML: {error}") from None
    if not isinstance(read, dict):
        raise _wrong(f"{path}: a spec is a mapping")
    return read, os.path.dirname(os.path.abspath(path))


def override(spec: dict[str, Any], overrides: Overrides) -> None:
    """Puts values of paths in their place: {"train.optimizer.lr": 0.1}, or ["train.optimizer.lr=0.1"] as on the command line."""
    if not isinstance(overrides, Mapping):
        pairs = [setting.partition("=") for setting in overrides]
        for path, equals, _ in pairs:
            if not equals:
                raise _wrong(f"{path}: a setting is PATH=VALUE")
        overrides = {path: yaml.safe_load(value) for path, _, value in pairs}
    for path, value in overrides.items():
        steps: list[Any] = [int(step[1:-1]) if step[0] == "[" else step for step in re.findall(r"\[\d+\]|[^.\[\]]+", path)]
        at: Any = spec
        try:
            for step, following in zip(steps, steps[1:]):
                if isinstance(at, dict) and at.get(step) is None:
                    at[step] = [] if isinstance(following, int) else {}
                at = at[step]
            at[steps[-1]] = value
        except (IndexError, TypeError, AttributeError):
            raise _wrong(f"{path}={value}: the spec has no such place") from None


def message_of(spec: Mapping[str, Any]) -> spec_pb2.RunSpec:
    message = spec_pb2.RunSpec()
    _fill(message, spec, "")
    return message


def _fill(message: Any, value: Any, path: str) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    if isinstance(value, list) and len(fields) == 1:  # in YAML the list itself
        value = {next(iter(fields)): value}
    if not isinstance(value, Mapping):
        raise _wrong(f"{path or 'the spec'}: a mapping is wanted, not {value!r}")
    for key, item in value.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, 1)
            raise _wrong(f"{where}: unknown key; " + (f"did you mean '{near[0]}'?" if near else f"known are {', '.join(fields)}"))
        if item is not None:
            _put(message, fields[key], item, where)


def _put(message: Any, field: Any, value: Any, path: str) -> None:
    kind = field.message_type
    if not _is_repeated(field):
        if kind:
            child = getattr(message, field.name)
            child.SetInParent()
            _fill(child, value, path)
        else:
            setattr(message, field.name, _scalar(field, value, path))
        return
    to = getattr(message, field.name)
    if kind and isinstance(value, Mapping):
        for key, item in value.items():
            if not kind.GetOptions().map_entry:
                _fill(to.add(), {"key": str(key), "value": item}, f"{path}.{key}")
            elif kind.fields_by_name["value"].message_type:
                _fill(to[str(key)], item, f"{path}.{key}")
            else:
                to[str(key)] = _scalar(kind.fields_by_name["value"], item, f"{path}.{key}")
        return
    for number, item in enumerate(value if isinstance(value, (list, tuple)) else [value]):
        if kind:
            _fill(to.add(), item, f"{path}[{number}]")
        else:
            to.append(_scalar(field, item, f"{path}[{number}]"))


def _is_repeated(field: Any) -> bool:
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _scalar(field: Any, value: Any, path: str) -> Any:
    value = WORDS.get(field.full_name, {}).get(value, value) if isinstance(value, str) else value
    try:
        if field.cpp_type == field.CPPTYPE_STRING and isinstance(value, (str, int, float, os.PathLike)):
            return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
        if field.cpp_type == field.CPPTYPE_BOOL and isinstance(value, bool):
            return value
        if field.cpp_type == field.CPPTYPE_DOUBLE and not isinstance(value, bool):
            return float(value)  # 1e-3 is a text to YAML 1.1
        if field.cpp_type not in (field.CPPTYPE_STRING, field.CPPTYPE_BOOL, field.CPPTYPE_DOUBLE) and not isinstance(value, bool):
            if int(value) == value:
                return int(value)
    except (TypeError, ValueError):
        pass
    raise _wrong(f"{path}: {value!r} does not fit")
