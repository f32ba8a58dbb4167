"""The dependency of refdelta on refdelta-core, the second distribution of this tree: a hook of hatchling.

A release names the version: ``make wheel`` sets ``REFDELTA_RELEASE=1``. Everything else that is built from the tree, by
its path or by git, takes the folder beside it, since no index has what is not released yet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CoreOfThisTree(MetadataHookInterface):
    """Adds the dependency to those that the configuration of the hook lists."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``dependencies``, which ``pyproject.toml`` declares as dynamic."""
        folder = Path(self.root) / "refdelta" / "core"
        release = os.environ.get("REFDELTA_RELEASE")
        core = f"refdelta-core=={metadata['version']}" if release else f"refdelta-core @ {folder.as_uri()}"
        metadata["dependencies"] = [core, *self.config["dependencies"]]
