"""Write api_0_8.json: the names and signatures of the package snkv 0.8, which kvstore.snkv must have.

Run where snkv is installed (``pip install snkv==0.8.0``), then commit the file:

    python derive_api.py > api_0_8.json

test_api.py describes kvstore.snkv with the same function. Only names, parameters and numbers are taken.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

CLASSES = ("KVStore", "ColumnFamily", "Iterator")


def signature(function: Any) -> str:
    """Return the parameters of a function, without their types."""
    parameters = inspect.signature(function).parameters.values()
    return str(inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters]))


def members(cls: type) -> dict[str, str]:
    """Return the members of a class that object does not have, and its constructor."""
    found: dict[str, str] = {}
    for name in dir(cls):
        private = name.startswith("_") and not name.startswith("__")
        if private or (name == "__init__" and cls.__name__ != "KVStore"):  # other classes are created by the package itself
            continue
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property):
            found[name] = "property"
        elif isinstance(member, classmethod):
            found[name] = "classmethod " + signature(getattr(cls, name))
        elif inspect.isfunction(member):
            found[name] = signature(member)
    return found


def describe(module: Any) -> dict[str, Any]:
    """Return everything that the module exports."""
    exceptions = {}
    constants = {}
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, int):
            constants[name] = value
        elif isinstance(value, type) and issubclass(value, BaseException):
            bases = [base for base in value.__mro__[1:] if base.__module__ in ("builtins", value.__module__)]
            exceptions[name] = sorted(base.__name__ for base in bases)
    with module.KVStore() as db:
        stats = sorted(db.stats())
    return {
        "all": sorted(module.__all__),
        "classes": {name: members(getattr(module, name)) for name in CLASSES},
        "constants": constants,
        "exceptions": exceptions,
        "stats": stats,
    }


if __name__ == "__main__":
    import snkv  # type: ignore[import-not-found,unused-ignore]

    print(json.dumps(describe(snkv), indent=1, sort_keys=True))
