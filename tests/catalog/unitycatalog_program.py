"""A program around ``unitycatalog-client`` 0.7.0, which generates its requests from Unity Catalog's own ``delta.yaml``.

Reads one call a line, ``[method, {arguments}]`` of ``DeltaTablesApi``, and writes what came of it as a line of JSON. It
runs in an environment of its own, since the client needs older versions of packages than the project.
"""

import asyncio
import importlib
import json
import pkgutil
import sys

# The wheel lacks four modules of `unitycatalog.delta`, which are those of `unitycatalog.client`, and looks for models
# there.
for name in ("api_client", "api_response", "rest", "exceptions", "configuration"):
    sys.modules[f"unitycatalog.delta.{name}"] = importlib.import_module(f"unitycatalog.client.{name}")
import unitycatalog.client.models as known  # noqa: E402 - see above
import unitycatalog.delta.internal.serde as serde  # noqa: E402 - see above
import unitycatalog.delta.models as package  # noqa: E402 - see above
from unitycatalog.client.api_client import ApiClient  # noqa: E402 - see above
from unitycatalog.client.configuration import Configuration  # noqa: E402 - see above
from unitycatalog.client.exceptions import ApiException  # noqa: E402 - see above
from unitycatalog.delta.api.delta_tables_api import DeltaTablesApi  # noqa: E402 - see above

MODELS = {}
for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
    MODELS |= {
        key: value
        for key, value in vars(importlib.import_module(module.name)).items()
        if key.startswith("Delta") and isinstance(value, type)
    }
for key, value in MODELS.items():
    setattr(known, key, value)
# The decoders of columns, which the missing `models/__init__.py` would import.
for module in pkgutil.iter_modules(serde.__path__, f"{serde.__name__}."):
    importlib.import_module(module.name)
# Columns are a struct, whose own `from_dict` drops its fields; that of the base, one of these decoders, does not.
MODELS["DeltaStructType"].from_dict = MODELS["DeltaDataType"].from_dict


def model(value):
    """``{"model": name, ...}`` as an instance of that model. ``from_dict`` of an update drops its nested commit."""
    if isinstance(value, list):
        return [model(one) for one in value]
    if not isinstance(value, dict) or "model" not in value:
        return value
    fields = {key: model(one) for key, one in value.items() if key != "model"}
    return MODELS[value["model"]](**fields)


async def main(url, token):
    async with ApiClient(Configuration(host=url)) as client:
        client.set_default_header("Authorization", f"Bearer {token}")
        api = DeltaTablesApi(client)
        for line in sys.stdin:
            method, arguments = json.loads(line)
            try:
                found = await getattr(api, method)(**{key: model(value) for key, value in arguments.items()})
                answer = {"ok": found.to_dict() if found is not None else None}
            except ApiException as error:
                answer = {"status": error.status, "error": json.loads(error.body)["error"] if error.body else None}
            print(json.dumps(answer, default=str), flush=True)


asyncio.run(main(*sys.argv[1:]))
