"""Resource Manager templates as Azure would read them: enough of the language to deploy the shipped ones.

Sources: the Azure Resource Manager documentation, "Understand the structure and syntax of ARM templates" and
"ARM template functions". Everything is evaluated, also what a condition then leaves out; what is unknown here
(a function, a parameter, a variable) is an error.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
TYPES = {"string": str, "int": int, "bool": bool, "array": list, "object": dict}
TOP = {"$schema", "contentVersion", "metadata", "parameters", "variables", "resources", "outputs"}
DEPLOYMENT = "Microsoft.Resources/deployments"
SUBSCRIPTION = "00000000-0000-0000-0000-00000000000a"
TOKEN = re.compile(r"\s*(?:'((?:[^']|'')*)'|(-?\d+)|([A-Za-z]\w*)|([()\[\],.]))")


class TemplateError(Exception):
    """What Azure would refuse."""


@dataclass(frozen=True)
class Resource:
    """A resource that would be made. ``scope``: what an extension (a role assignment) is put on."""

    type: str
    name: str
    scope: str
    body: Json

    @property
    def properties(self) -> Json:
        found: Json = self.body["properties"]
        return found


@dataclass
class Deployment:
    """One template, deployed into one resource group."""

    template: Json
    group: str
    subscription: str = SUBSCRIPTION
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if extra := set(self.template) - TOP:
            raise TemplateError(f"not of a template: {extra}")
        if self.template["$schema"] != SCHEMA or not self.template["contentVersion"]:
            raise TemplateError("no schema, or no version")
        declared = self.template.get("parameters", {})
        if unknown := set(self.given) - set(declared):
            raise TemplateError(f"parameters that are not declared: {unknown}")
        self._parameters = {name: self._parameter(name, given) for name, given in declared.items()}

    # ------------------------------------------------------------ parameters

    def _parameter(self, name: str, declared: Json) -> Any:
        if name not in self.given and "defaultValue" not in declared:
            raise TemplateError(f"parameter {name} has no value")
        value = self.given.get(name, self.value(declared.get("defaultValue"), {}))
        if type(value) is not TYPES[declared["type"]]:
            raise TemplateError(f"parameter {name} is not of type {declared['type']}: {value!r}")
        allowed = declared.get("allowedValues")
        if allowed is not None and not set(value if isinstance(value, list) else [value]) <= set(allowed):
            raise TemplateError(f"parameter {name} is not allowed to be {value!r}")
        size = len(value) if isinstance(value, str | list) else value
        low = declared.get("minLength", declared.get("minValue"))
        high = declared.get("maxLength", declared.get("maxValue"))
        if (low is not None and size < low) or (high is not None and size > high):
            raise TemplateError(f"parameter {name} is too small or too large: {value!r}")
        return value

    # ------------------------------------------------------------ resources

    def resources(self) -> list[Resource]:
        """All that would be made, nested deployments opened. ``dependsOn`` has to name what is there."""
        found = list(self._resources())
        self.outputs()
        return found

    def outputs(self) -> Json:
        return {n: self.value(o["value"], {}) for n, o in self.template.get("outputs", {}).items()}

    def _resources(self) -> Iterator[Resource]:
        declared = self.template["resources"]
        loops = {r["copy"]["name"] for r in declared if "copy" in r}
        bodies = [body for resource in declared for body in self._copies(resource)]
        known = loops | {self.id_of(body["type"], *body["name"].split("/")) for body in bodies}
        for body in bodies:
            if lost := set(body.get("dependsOn", ())) - known:
                raise TemplateError(f"{body['name']} waits for what is not there: {lost}")
            if not body.get("condition", True):
                continue
            if body["type"] == DEPLOYMENT:
                yield from self.nested(body).resources()
            else:
                yield Resource(body["type"], body["name"], body.get("scope", self.group_id), body)

    def _copies(self, resource: Json) -> Iterator[Json]:
        """The resource, or one for each turn of its loop. A nested template is left as it stands."""
        loop = resource.get("copy")
        for index in range(self.value(loop["count"], {}) if loop else 1):
            inside = {"copyIndex": index} if loop else {}
            shallow = {key: value for key, value in resource.items() if key not in ("copy", "properties")}
            body: Json = self.value(shallow, inside)
            properties = dict(resource.get("properties", {}))
            template = properties.pop("template", None)
            body["properties"] = self.value(properties, inside)
            if template is not None:
                body["properties"]["template"] = template
            yield body

    def nested(self, body: Json) -> Deployment:
        """The deployment that a resource of that type is; it sees its own parameters and no others."""
        properties = body["properties"]
        if properties["expressionEvaluationOptions"] != {"scope": "inner"}:
            raise TemplateError(f"{body['name']} would be evaluated outside")
        return Deployment(
            properties["template"],
            body.get("resourceGroup", self.group),
            body.get("subscriptionId", self.subscription),
            {name: given["value"] for name, given in properties["parameters"].items()},
        )

    # ------------------------------------------------------------ expressions

    def value(self, raw: Any, inside: Mapping[str, int]) -> Any:
        """``raw`` with every expression in it evaluated."""
        if isinstance(raw, dict):
            return {key: self.value(item, inside) for key, item in raw.items()}
        if isinstance(raw, list):
            return [self.value(item, inside) for item in raw]
        if isinstance(raw, str) and is_expression(raw):
            return _Reader(raw[1:-1], lambda name, args: self._call(name, args, inside)).all()
        return raw

    def _call(self, name: str, args: Sequence[Any], inside: Mapping[str, int]) -> Any:
        if name in ("parameters", "variables"):
            return self._named(name, args[0])
        if name == "copyIndex":
            return inside["copyIndex"]
        if name == "resourceGroup":
            return {"id": self.group_id, "name": self.group, "location": "westeurope"}
        if name == "subscription":
            return {"id": f"/subscriptions/{self.subscription}", "subscriptionId": self.subscription}
        if name == "resourceId":
            return self.id_of(*args)
        if name == "subscriptionResourceId":
            return f"/subscriptions/{self.subscription}/providers/{args[0]}/{args[1]}"
        if name == "reference":
            return {key: f"<{key} of {args[0]}>" for key in ("principalId", "clientId")}
        if name not in FUNCTIONS:
            raise TemplateError(f"no function {name}")
        return FUNCTIONS[name](*args)

    def _named(self, kind: str, name: str) -> Any:
        if kind == "parameters":
            if name not in self._parameters:
                raise TemplateError(f"no parameter {name}")
            return self._parameters[name]
        if name not in self.template.get("variables", {}):
            raise TemplateError(f"no variable {name}")
        return self.value(self.template["variables"][name], {})

    @property
    def group_id(self) -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"

    def id_of(self, kind: str, *names: str) -> str:
        """The ID of a resource of this group: each part of the type but the first takes a name."""
        service, *types = kind.split("/")
        parts = [part for pair in zip(types, names, strict=True) for part in pair]
        return f"{self.group_id}/providers/{service}/{'/'.join(parts)}"


def is_expression(text: str) -> bool:
    return text.startswith("[") and not text.startswith("[[") and text.endswith("]")


def _concat(*args: Any) -> Any:
    if all(isinstance(arg, list) for arg in args):
        return [item for arg in args for item in arg]
    if any(isinstance(arg, list | dict) for arg in args):
        raise TemplateError("concat of a list and something else")
    return "".join(str(arg) for arg in args)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "concat": _concat,
    "createArray": lambda *args: list(args),
    "createObject": lambda *args: dict(zip(args[::2], args[1::2], strict=True)),
    "div": lambda a, b: a // b,
    "empty": lambda a: len(a) == 0,
    "equals": lambda a, b: a == b,
    "guid": lambda *args: str(uuid.uuid5(uuid.NAMESPACE_OID, "-".join(args))),
    "if": lambda test, yes, no: yes if test else no,
    "intersection": lambda first, *more: [x for x in first if all(x in other for other in more)],
    "length": len,
    "mod": lambda a, b: a % b,
    "mul": lambda a, b: a * b,
    "not": lambda a: not a,
    "split": lambda text, by: text.split(by),
    "string": str,
    "toLower": str.lower,
}


class _Reader:
    """One expression: a text, a number, or a call, each perhaps with ``.name`` or ``[index]`` behind it."""

    def __init__(self, text: str, call: Callable[[str, list[Any]], Any]) -> None:
        self._text, self._call, self._at = text, call, 0

    def all(self) -> Any:
        value = self._one()
        if self._text[self._at :].strip():
            raise TemplateError(f"not understood: {self._text[self._at :]}")
        return value

    def _next(self) -> tuple[str, str]:
        found = TOKEN.match(self._text, self._at)
        if found is None:
            raise TemplateError(f"not understood: {self._text[self._at :]}")
        self._at = found.end()
        kind = ("text", "number", "name", "mark")[(found.lastindex or 1) - 1]
        return kind, found[found.lastindex or 1]

    def _peek(self) -> str:
        found = TOKEN.match(self._text, self._at)
        return found[4] or "" if found else ""

    def _expect(self, mark: str) -> None:
        if self._next() != ("mark", mark):
            raise TemplateError(f"{mark} expected in {self._text}")

    def _one(self) -> Any:
        kind, text = self._next()
        if kind == "text":
            return text.replace("''", "'")
        if kind == "number":
            return int(text)
        if kind != "name":
            raise TemplateError(f"{text} is out of place in {self._text}")
        return self._behind(self._call(text, self._arguments()))

    def _arguments(self) -> list[Any]:
        self._expect("(")
        found: list[Any] = []
        while self._peek() != ")":
            if found:
                self._expect(",")
            found.append(self._one())
        self._expect(")")
        return found

    def _behind(self, value: Any) -> Any:
        while (mark := self._peek()) in (".", "["):
            self._expect(mark)
            if mark == ".":
                value = value[self._next()[1]]
            else:
                value = value[self._one()]
                self._expect("]")
        return value


# ---------------------------------------------------------------- what is declared and what is used


def templates(document: Json) -> Iterator[Json]:
    """The template, and each that is nested in it."""
    yield document
    for resource in document["resources"]:
        if resource["type"] == DEPLOYMENT:
            yield from templates(resource["properties"]["template"])


def asked_for(template: Json) -> set[str]:
    """ "parameters NAME" and "variables NAME" for each that the template itself reads, nested ones apart."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, item in value.items():
                if key != "template":
                    yield from texts(item)
        elif isinstance(value, list):
            for item in value:
                yield from texts(item)
        elif isinstance(value, str) and is_expression(value):
            yield value

    found = re.findall(r"\b(parameters|variables)\('([^']+)'\)", "\n".join(texts(template)))
    return {f"{kind} {name}" for kind, name in found}


def declared(template: Json) -> set[str]:
    """The same for each that the template declares."""
    return {f"{kind} {name}" for kind in ("parameters", "variables") for name in template.get(kind, {})}
