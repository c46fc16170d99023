"""Modules and control repositories of Puppet as the draft of one bundle.

1. Read all manifests, and the names of their variables (``programs.py``).
2. Map each class and each define to a manifest (``manifests.py``).
3. Resolve relationships (``classes.py``).
4. Divide the variables: a variable that only one manifest uses stays there. The top manifest has all others, because
   a child has no access to the data of another child.
5. Copy files and Hiera trees unchanged, and add test cases.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from puller.authoring.importing.ansible.role_importer import PLATFORMS
from puller.authoring.importing.conflicts import resolve_conflicts
from puller.authoring.importing.draft import Draft, ManifestDraft, Resource, document_text
from puller.authoring.importing.puppet.language.syntax import ClassDefinition
from puller.authoring.importing.puppet.manifests import UnitMapper
from puller.authoring.importing.puppet.programs import Program, load_program
from puller.authoring.importing.reading import SourceTree, as_list, as_mapping
from puller.errors import SourceError

_KEY: Final = re.compile(r"data\['((?:[a-z_]\w*::)*[a-z_]\w*)'\]")
_TREES: Final = ("data", "hieradata", "hiera")
_REFERENCES: Final = ("require", "after", "subscribe", "reload")


def import_puppet(source: Path, name: str) -> Draft:
    """Return the draft for a module, a control repository or a manifest. Raises ``SourceError``."""
    tree = SourceTree(source.parent if source.is_file() else source)
    top = ManifestDraft("manifest.yaml")
    draft = Draft(name, "puppet", {top.path: top})
    program = load_program(tree, draft, source.name if source.is_file() else "")
    mapper = UnitMapper(program)
    for unit in [*program.units.values(), *program.tops]:
        mapper.map_unit(unit)
    for (class_name, parameter), value in mapper.classes.explicit.items():
        unit = program.units[class_name]
        draft.manifests[unit.path].data[f"{class_name}::{parameter}"] = value
    _apply_main(program, top, mapper)
    _copy_files(program)
    keys = _copy_hiera(program)
    _add_hiera(draft)
    _list_missing(program, keys)
    _drop_empty(program, draft, top)
    mapper.links.resolve(mapper.label, mapper.classes.leads_to)
    _clean(draft)
    _divide_data(draft, top)
    _pass_data(draft)
    _add_tests(program)
    for path, reason in sorted(tree.rejected.items()):
        draft.check(f"{path} {reason}.")
    resolve_conflicts(draft)
    _repair_requirements(draft)
    return draft


def _apply_main(program: Program, top: ManifestDraft, mapper: UnitMapper) -> None:
    """Apply the class with the name of the module. Without it, propose all classes."""
    if program.is_repository or program.tops:
        return
    for name in program.modules:
        unit = program.units.get(name)
        if unit is not None and unit.kind == "class":
            comment = f"The class {name}"
            top.resources.insert(0, Resource("apply", f"bundle:{unit.path}", comments=[comment]))
            mapper.classes.applied.setdefault(top.path, set()).add(unit.path)
            return
    for unit in program.units.values():
        if unit.kind == "class":
            comments = [f"The class {unit.name}. Apply it if you need it."]
            top.resources.append(Resource("apply", f"bundle:{unit.path}", comments=comments, disabled=True))
    program.draft.check("The module has no main class. Apply the classes that you need in manifest.yaml.")


def _copy_files(program: Program) -> None:
    draft, tree = program.draft, program.tree
    for module in program.modules.values():
        start = module.path("files")
        if not tree.is_directory(start):
            continue
        for path in tree.files(start):
            target = f"files/{module.name}/{path[len(start) + 1 :]}"
            try:
                draft.files[target] = tree.content(path)
            except SourceError as error:
                draft.check(f"{path} is not copied: {error}")
                continue
            if tree.is_executable(path):
                draft.executable.add(target)


def _copy_hiera(program: Program) -> set[str]:
    """Copy the Hiera tree unchanged. Returns the keys that it defines."""
    draft, tree = program.draft, program.tree
    keys: set[str] = set()
    roots = [""] if program.is_repository else []
    roots += [module.directory for module in program.modules.values()]
    chosen: str | None = None
    for root in dict.fromkeys(roots):
        path = f"{root}/hiera.yaml" if root else "hiera.yaml"
        document = tree.find_document(path)
        if document is None:
            continue
        value = as_mapping(document.value)
        if value.get("version") != 5:
            draft.check(f"{path} has another version than 5, and is not copied.")
            continue
        if chosen is not None:
            keys |= _merge_common(program, root)
            continue
        chosen = root
        draft.files["hiera.yaml"] = tree.content(path)
        levels = [as_mapping(level) for level in as_list(value.get("hierarchy"))]
        directories = {str(level.get("datadir", "")) for level in levels}
        directories.add(str(as_mapping(value.get("defaults")).get("datadir", "data")))
        for directory in sorted(directories & {*_TREES, *directories} - {""}):
            keys |= _copy_tree(program, root, directory)
    return keys


def _add_hiera(draft: Draft) -> None:
    """Add a Hiera tree for the lookups of a module without its own tree."""
    if "hiera.yaml" in draft.files or not any(
        b"hiera(" in manifest.text().encode() for manifest in draft.manifests.values()
    ):
        return
    levels = [{"name": "common", "path": "common.yaml"}]
    draft.files["hiera.yaml"] = document_text({"version": 5, "hierarchy": levels}).encode()
    draft.files["data/common.yaml"] = document_text({}).encode()
    draft.check(
        "The source has lookups, but no Hiera tree. Add your data to hiera.yaml and data/common.yaml."
    )


def _copy_tree(program: Program, root: str, directory: str) -> set[str]:
    draft, tree = program.draft, program.tree
    keys: set[str] = set()
    if ".." in directory.split("/") or directory.startswith("/") or "%{" in directory:
        draft.check(f"The data directory {directory} of the Hiera tree is not copied.")
        return keys
    start = f"{root}/{directory}" if root else directory
    for path in tree.files(start):
        target = path[len(root) + 1 :] if root else path
        try:
            content = tree.content(path)
        except SourceError as error:
            draft.check(f"{path} is not copied: {error}")
            continue
        draft.files[target] = content
        if b"ENC[" in content:
            draft.check(f"{target} contains values that eyaml has encrypted. They need `eyaml_private_key`.")
        if path.endswith((".yaml", ".yml", ".eyaml")):
            document = tree.find_document(path)
            keys |= {str(key) for key in as_mapping(document.value if document else None)}
    return keys


def _merge_common(program: Program, root: str) -> set[str]:
    """Use the common data of a further module as defaults of its classes."""
    draft = program.draft
    document = program.tree.find_document(f"{root}/data/common.yaml")
    values = as_mapping(document.value if document else None)
    by_path = {unit.name: unit.path for unit in program.units.values() if unit.kind == "class"}
    for key, value in values.items():
        owner = str(key).rpartition("::")[0]
        if (owner in by_path and not isinstance(value, str)) or (
            owner in by_path and "%{" not in value and "{{" not in value
        ):
            draft.manifests[by_path[owner]].data[str(key)] = value
    draft.check(
        f"{root}/hiera.yaml: only data/common.yaml of this module is imported. Add its other levels to hiera.yaml."
    )
    return {str(key) for key in values}


def _list_missing(program: Program, keys: set[str]) -> None:
    """List the parameters of classes that have no value."""
    for unit in program.units.values():
        if unit.kind != "class" or not isinstance(unit.node, ClassDefinition):
            continue
        data = program.draft.manifests[unit.path].data
        for parameter in unit.node.parameters:
            key = f"{unit.name}::{parameter.name}"
            if parameter.default is None and data.get(key) is None and key not in keys:
                program.draft.check(f"The source sets no value for the parameter {key}. Set it in the data.")


def _drop_empty(program: Program, draft: Draft, top: ManifestDraft) -> None:
    """Remove the manifests of classes that only set variables. Their data move to the top manifest."""
    for unit in program.units.values():
        manifest = draft.manifests.get(unit.path)
        if unit.kind != "class" or manifest is None or manifest.resources:
            continue
        for key, value in manifest.data.items():
            top.data.setdefault(key, value)
        top.comments += [comment for comment in manifest.comments if comment.startswith("Not mapped")]
        del draft.manifests[unit.path]
        for other in draft.manifests.values():
            other.resources = [item for item in other.resources if item.name != f"bundle:{unit.path}"]


def _clean(draft: Draft) -> None:
    """Remove empty lists of references."""
    for manifest in draft.manifests.values():
        for resource in manifest.resources:
            for key in _REFERENCES:
                if resource.properties.get(key) == []:
                    del resource.properties[key]


# Data.


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for pair in value.items() for item in pair for text in _texts(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _used_keys(draft: Draft, manifest: ManifestDraft) -> set[str]:
    """Return the variables of classes that the resources of a manifest use, with their templates."""
    keys: set[str] = set()
    for resource in manifest.resources:
        if not resource.disabled:
            keys |= _keys_of_resource(draft, resource)
    return keys


def _keys_of_resource(draft: Draft, resource: Resource) -> set[str]:
    texts = [resource.name, resource.loop, *resource.outer, *_texts(resource.properties)]
    keys = {key for text in texts for key in _KEY.findall(text)}
    return keys.union(*(_keys_of_template(draft, text) for text in texts))


def _keys_of_template(draft: Draft, text: str) -> set[str]:
    """Return the variables of classes in the templates that a text names."""
    paths = re.findall(r"bundle:(templates/[^'\"]+)", text)
    return {
        key for path in paths for key in _KEY.findall(draft.files.get(path, b"").decode(errors="replace"))
    }


def _divide_data(draft: Draft, top: ManifestDraft) -> None:
    """Move variables that several manifests use to the top manifest, and remove references to missing ones."""
    owners = {
        key: manifest
        for manifest in draft.manifests.values()
        for key in manifest.data
        if manifest is not top and "::" in key
    }
    pending = []
    for manifest in draft.manifests.values():
        used = _used_keys(draft, manifest) | {
            key for text in _texts(manifest.data) for key in _KEY.findall(text)
        }
        pending += [key for key in sorted(used) if owners.get(key, manifest) is not manifest]
    for path, content in sorted(draft.files.items()):
        # Lint reads all templates, also the templates of classes that the draft does not apply.
        if path.startswith("templates/") and path.endswith(".j2"):
            pending += sorted(set(_KEY.findall(content.decode(errors="replace"))))
    while pending:
        key = pending.pop(0)
        owner = owners.pop(key, None)
        if owner is None:
            continue
        value = owner.data.pop(key)
        top.data[key] = value
        pending += [name for text in _texts(value) for name in _KEY.findall(text)]
    known = set(top.data) | set(owners)
    for manifest in draft.manifests.values():
        for key in sorted(_used_keys(draft, manifest) - known):
            top.data[key] = None
            known.add(key)


def _pass_data(draft: Draft) -> None:
    """Pass variables of classes to children with own data, which replaces all other data."""
    needs: dict[str, set[str]] = {}
    for path, manifest in draft.manifests.items():
        texts = _texts(manifest.data)
        needs[path] = _used_keys(draft, manifest) | {key for text in texts for key in _KEY.findall(text)}
        needs[path] -= set(manifest.data)
    for _ in range(len(draft.manifests)):
        before = sum(map(len, needs.values()))
        for path, manifest in draft.manifests.items():
            for resource in manifest.resources:
                if resource.type == "apply" and "data" in resource.properties and not resource.disabled:
                    needs[path] |= needs.get(resource.name.removeprefix("bundle:"), set()) - set(
                        manifest.data
                    )
        if sum(map(len, needs.values())) == before:
            break
    for manifest in draft.manifests.values():
        for resource in manifest.resources:
            data = resource.properties.get("data")
            if not isinstance(data, dict) or resource.disabled:
                continue
            inner = (
                needs.get(resource.name.removeprefix("bundle:"), set())
                if resource.type == "apply"
                else _keys_of_template(draft, str(resource.properties.get("template", "")))
            )
            for key in sorted(inner - set(data)):
                data[key] = f"{{{{ data['{key}'] }}}}"


def _repair_requirements(draft: Draft) -> None:
    """Remove requirements of resources that the draft contains only as proposals."""
    active = [
        resource
        for manifest in draft.manifests.values()
        for resource in manifest.resources
        if not resource.disabled
    ]
    known = {f"{item.type}#{item.name}" for item in active} | {item.reference for item in active}
    for resource in active:
        for key in ("require", "after"):
            if key in resource.properties:
                kept = [item for item in resource.properties[key] if item in known]
                resource.properties[key] = kept
                if not kept:
                    del resource.properties[key]


def _add_tests(program: Program) -> None:
    systems: dict[str, None] = {}
    for entry in as_list(program.metadata.get("operatingsystem_support")):
        name = str(as_mapping(entry).get("operatingsystem", "")).lower()
        systems |= dict.fromkeys(PLATFORMS.get(name, ()))
    for system in list(systems) or ["debian-12"]:
        comments = ["The defaults of the source. Add expected resources under `expect`."]
        program.draft.files[f"tests/{system}.yaml"] = document_text({"os": system}, comments).encode()
