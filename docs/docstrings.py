"""The docstrings as the reference of the site shows them: an extension of griffe, which reads them for mkdocstrings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import griffe

from by_path import generator
from refdelta.api.awaiting import awaited_docstring

reference = generator("reference")
ROLE = re.compile(r":\w+:`~?([\w.]+)`")
EXAMPLE = re.compile(r"^Example::\n((?:\n|    .*(?:\n|$))+)", re.MULTILINE)
AWAITED = re.compile(r"awaitable\((\w+)\)")
SAME_AS = re.compile(r"\b[Aa]s\s+(?:for\s+)?:meth:`~?([\w.]+)`")
PARAMETERS, RAISES = griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.raises


class Docstrings(griffe.Extension):
    """References become links, examples become blocks of Python, and a docstring that says "as" and names a method gets
    what it leaves out, arguments and errors, from the docstring of that method.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change all docstrings of a package."""
        _await(pkg)
        found = list(_documented(pkg))
        same = {one.path: [_target(one, name) for name in SAME_AS.findall(one.docstring.value)] for one in found}
        for one in found:
            text = EXAMPLE.sub(_block, one.docstring.value)
            one.docstring.value = ROLE.sub(lambda role, one=one: _link(one, role[1]), text)
        for one in found:
            if one.is_function:
                _complete(one, same)


def _await(owner: griffe.Object) -> None:
    """Put a function in the place of each attribute that is the ``await`` form of another, ``awaitable(f)``."""
    for name, member in list(owner.members.items()):
        if member.is_alias:
            continue
        if member.is_class or member.is_module:
            _await(member)
        elif member.is_attribute and (form := AWAITED.fullmatch(str(member.value))):
            other = owner.members[form[1]]
            text = awaited_docstring(other.docstring.value, f"{owner.name}.{form[1]}" if owner.is_class else form[1])
            docstring = griffe.Docstring(text, parser=other.docstring.parser, lineno=member.lineno)
            made = griffe.Function(name, parameters=other.parameters, returns=other.returns, docstring=docstring)
            made.lineno, made.endlineno = member.lineno, member.endlineno
            made.labels.add("async")
            owner.set_member(name, made)


def _documented(found: griffe.Object) -> Iterator[griffe.Object]:
    if found.docstring:
        yield found
    for member in found.members.values():
        if not member.is_alias:
            yield from _documented(member)


def _target(one: griffe.Object, name: str) -> griffe.Object | None:
    """The object that a docstring names: of the same class, of the module, or by its whole path."""
    first, *rest = name.split(".")
    owner = one if one.is_class else one.parent
    for start in (one.resolve, lambda first: f"{owner.path}.{first}"):
        try:
            path = name if first == "refdelta" else ".".join([start(first), *rest])
            found = one.modules_collection[path]
            found = found.final_target if found.is_alias else found
        except (KeyError, griffe.NameResolutionError, griffe.AliasResolutionError):
            continue
        return found
    return None


def _link(one: griffe.Object, name: str) -> str:
    found, shown = _target(one, name), f"<code>{reference.short(name)}</code>"
    return f'<autoref optional identifier="{found.path}">{shown}</autoref>' if found else shown


def _block(example: re.Match[str]) -> str:
    return f"**Example**\n\n```python\n{textwrap.dedent(example[1]).strip()}\n```\n\n"


def _complete(one: griffe.Function, same: dict[str, list[griffe.Object | None]]) -> None:
    """Add the arguments and errors that other docstrings describe."""
    for other in same.pop(one.path, []):  # at most once, and before others take from it
        if other is None or not other.is_function or not other.docstring:
            continue
        _complete(other, same)
        described = {entry.name.lstrip("*") for entry in _entries(one, PARAMETERS)}
        wanted = {parameter.name for parameter in one.parameters} - described
        more = [entry for entry in _entries(other, PARAMETERS) if entry.name.lstrip("*") in wanted]
        _add(one, griffe.DocstringSectionParameters, PARAMETERS, more)
        known = {str(entry.annotation) for entry in _entries(one, RAISES)}
        more = [entry for entry in _entries(other, RAISES) if str(entry.annotation) not in known]
        _add(one, griffe.DocstringSectionRaises, RAISES, more)


def _entries(one: griffe.Function, kind: griffe.DocstringSectionKind) -> list[Any]:
    return [entry for section in one.docstring.parsed if section.kind is kind for entry in section.value]


def _add(one: griffe.Function, make: Any, kind: griffe.DocstringSectionKind, entries: list[Any]) -> None:
    found = next((section for section in one.docstring.parsed if section.kind is kind), None)
    if found is not None:
        found.value.extend(entries)
    elif entries:
        one.docstring.parsed.append(make(entries))
