"""Which layers a tree has: the global one, the environment's, and one for each module that has data.

A layer that has no ``hiera.yaml`` does not exist, except the global one, which then has one level, ``common.yaml``; so
has one that a data provider of Puppet 4 asks for (``providers``).
"""

import os
import posixpath
from collections.abc import Sequence
from functools import cached_property

from hiera.tree import modules
from hiera.tree.backends.base import Tools
from hiera.tree.config import providers
from hiera.tree.config.documents import Kind
from hiera.tree.config.load import load_config
from hiera.tree.config.model import ENVIRONMENT, GLOBAL, MODULE
from hiera.tree.config.providers import Provider
from hiera.tree.context.absent import ABSENT, Absent
from hiera.tree.context.explain import SILENT, Step
from hiera.tree.layers import Layer


class Layout:
    """The layers by name; each ``hiera.yaml`` is read when its layer is first asked for."""

    def __init__(
        self,
        environment: str | None,
        config_path: str | None,
        global_config: str | None,
        module_path: Sequence[str],
        tools: Tools,
    ) -> None:
        """``config_path`` is the environment's configuration where that is not its ``hiera.yaml``."""
        self._environment = environment and os.path.abspath(environment)
        self._config_path = config_path and os.path.abspath(config_path)
        self._global_config = global_config and os.path.abspath(global_config)
        self._given_modules = [os.path.abspath(path) for path in module_path]
        self._tools = tools
        self._documents = tools.files.documents
        self._layers: dict[str, Layer | None] = {}
        self._environment_layer: Layer | Absent | None = ABSENT
        self._module_layers: dict[str, Layer | None] = {}

    def global_layer(self) -> Layer | None:
        """The layer above all others, if a global ``hiera.yaml`` was named."""
        return self._layer(GLOBAL, self._global_config) if self._global_config else None

    def environment_layer(self) -> Layer | None:
        """The layer of the environment, if it has a ``hiera.yaml``, or a data provider of Puppet 4."""
        if self._environment_layer is ABSENT:
            self._environment_layer = self._find_environment_layer()
        return self._environment_layer

    def _find_environment_layer(self) -> Layer | None:
        directory = self._environment
        path = self._config_path or (directory and posixpath.join(directory, "hiera.yaml"))
        provider = providers.of_environment(directory, self._documents) if directory else None
        return self._provided(ENVIRONMENT, path, provider, None) if path else None

    def _provided(self, place: str, path: str, provider: Provider | None, module: str | None) -> Layer | None:
        """The layer of the ``hiera.yaml`` at ``path``; a provider counts where that is not of version 5."""
        exists = path in self._layers or self._documents.kind(path) is not Kind.NOTHING
        layer = self._layer(place, path, module) if exists else None
        if provider is None:
            return layer
        provider.warn(self._tools.warn, layer.version if layer else None)
        # A hiera.yaml of version 5 beats every provider; beside the provider hiera an older one counts, too.
        if (layer is not None and layer.version >= 5) or provider.name == providers.HIERA:
            return layer or self._layer(place, path, module)
        if provider.name == providers.NONE:
            return None
        if provider.name == providers.FUNCTION:
            made = provider.function(module or place.lower())
            return Layer(place, made, self._tools, provider.path, module)
        raise provider.unknown(f"{place} '{module or posixpath.basename(self._environment or '')}'")

    def module_layer(self, module: str, step: Step) -> Layer | None:
        """The layer of ``module``; ``step`` is told why there is none."""
        directory = modules.find(module, self._module_path, self._documents)
        if directory is None:
            step.add("module", module).skipped("module_not_found")
            return None
        if module not in self._module_layers:
            provider = providers.of_module(directory, self._documents, self._tools.warn)
            path = posixpath.join(directory, "hiera.yaml")
            self._module_layers[module] = self._provided(MODULE, path, provider, module)
        layer = self._module_layers[module]
        if layer is None:
            step.add("module", module).skipped("module_provider_not_found")
        return layer

    def all_layers(self) -> list[Layer]:
        """Every layer there is, those of modules by name."""
        names = (entry.name for path in self._module_path for entry in self._documents.entries(path))
        of_modules = [self.module_layer(name, SILENT) for name in sorted(set(names))]
        layers = [self.global_layer(), self.environment_layer(), *of_modules]
        return [layer for layer in layers if layer is not None]

    @cached_property
    def _module_path(self) -> list[str]:
        found = modules.module_path(self._environment, self._documents) if self._environment else []
        return self._given_modules + found

    def _layer(self, place: str, path: str, module: str | None = None) -> Layer | None:
        if path not in self._layers:
            loaded = load_config(path, self._documents, place, self._tools.warn)
            self._layers[path] = Layer(place, loaded, self._tools, path, module) if loaded else None
        return self._layers[path]
