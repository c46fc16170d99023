"""The loader of manifests: returns the declared resources in order, or all problems at once.

* The loader does not examine the machine. The caller passes facts and outer data. Only files below the manifest are
  read.
* Each value is resolved once. An expression that fails on this machine is a failure of its resource, reported when
  the resource is reached. Any other problem rejects the manifest.
* Items of a loop with the same name are declarations of one resource, and must agree. A loop that cannot be evaluated
  on this machine is one declaration with that failure. Properties that all items share are checked also for a loop
  without items.
* An export without a value on this host is reported by each run and not exported. Its resources are still applied.
* Secrets are never exported.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os.path import dirname, join
from pathlib import Path
from typing import Any

import msgspec

from foundation.formatting import prefixed
from foundation.masking import Mask
from foundation.problems import KeyPath, Problem, ProblemCode, replaced
from hiera import parsing
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, depends_of_value, has_expression, resolve_tree
from hiera.limits import total
from hiera.values import has_secret
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.manifest import children
from puller.manifest.children import Family
from puller.manifest.declaration import Child, Declaration, Home
from puller.manifest.declare import declare, declare_unlooped
from puller.manifest.entries import FOR, Entry, read_entries
from puller.manifest.graph.agreement import Disagreement, agreed
from puller.manifest.graph.contradictions import Key, find_contradictions, objects_of, spellings_of
from puller.manifest.graph.links import link, order
from puller.manifest.libraries import bundle_facts, bundle_files
from puller.manifest.loops import Item, Loop, LoopScopes, Repeated
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.manifest_reader import ManifestText, home_of
from puller.manifest.masking import Masks
from puller.manifest.problems import Problems
from puller.system import processes
from puller.system.local_paths import Spellings
from puller.values.common_properties import LABEL, Reference
from puller.values.export_types import Export, find_problem

# Exports of a manifest on one host, checked against their types.


def exported_values(
    text: ManifestText, declared: Mapping[str, Export], scope: Scope
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values by name, and a problem for each export without a value on this host."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, export in declared.items():
        value, problem = _value(name, export, scope)
        if problem is not None:
            problems.append(text.problems.placed(problem, (*text.run_path, "exports", name)))
        else:
            values[name] = value
    if message := find_problem(values):
        path = (*text.run_path, "exports")
        return {}, [*problems, text.problems.problem(path, message, code=ProblemCode.INVALID_EXPORT)]
    return values, problems


def _value(name: str, export: Export, scope: Scope) -> tuple[Any, Problem | None]:
    try:
        value = resolve_tree(export.value, scope)
    except HieraError as error:
        return None, prefixed(error.problems[0], f"exports.{name} is unavailable on this host")
    if has_secret(value):
        message = f"exports.{name} is a secret, which is never exported"
        return None, Problem(code=ProblemCode.EXPOSED_SECRET, message=message, name=name)
    value = list(value) if isinstance(value, tuple) else value
    if not (what := export.type.problem(value)):
        return value, None
    on = depends_of_value(export.value)
    message = f"exports.{name} {what}"
    return value, Problem(code=ProblemCode.INVALID_EXPORT, message=message, name=name, depends_on=on)


def load_manifest(
    path: Path,
    name: str,
    inputs: Inputs,
    known: Collection[Reference] = (),
    texts: list[Problems] | None = None,
) -> Manifest:
    """Return the manifest at ``path``. ``name`` is its name in messages. ``texts`` receives all read texts.

    References may refer to ``known`` resources of other manifests.

    The facts of the bundle override those of the host (``bundle_facts``). The first steps are for this manifest, and
    for each child manifest when its ``apply`` resource is reached (``_declared``):

    1. Read the text and check its keys (``docs/resources/common.md``). If it requires another version of Puller, report
       only that.
    2. Merge and check the data of all sources (``docs/data.md``). They make the scope of expressions.
    3. Read its list of resources, and then the list that a template renders.
    4. Make a declaration of each entry, or of each item of its loop, with its expressions resolved.
    5. Insert the resources of a child before the first ``apply`` resource that applies it.

    The next steps are for all manifests together (``_load``):

    6. Unite the declarations of one resource, if they agree.
    7. Let each type check the properties of its resources, alone and against each other.
    8. Resolve references and determine the order.
    9. Raise the problems of all texts at once.

    Raise ``SourceError`` if the manifest cannot be read, ``ManifestError`` with all problems if it is invalid.
    """
    with total:
        text = ManifestText.of_file(path, name)
        files = _files_of(text)
        family = Family(path, name, files, texts=[] if texts is None else texts)
        libraries = [Path(library.root) for library in files.libraries.values()]
        facts = bundle_facts(inputs.facts, path.parent, family.refused, libraries)
        return _load(text, msgspec.structs.replace(inputs, facts=facts), family, known)


def _files_of(text: ManifestText) -> BundleFiles:
    if "libraries" not in text.value:
        return BundleFiles.of(text.directory)
    return bundle_files(text)


def load_value(path: Path, value: dict[str, Any], problems: Problems, inputs: Inputs) -> Manifest:
    """Return a manifest for ``value``, as if it had been read from ``path``. Raise ``ManifestError``."""
    with total:
        text = ManifestText.of_value(path.parent, value, problems)
        # Without a bundle, any path is allowed.
        return _load(text, inputs, Family(path, problems.source, BundleFiles.anywhere(path.parent)))


def _load(text: ManifestText, inputs: Inputs, family: Family, known: Collection[Reference] = ()) -> Manifest:
    home, declarations = _declared(text, inputs, family)
    # 6. One declaration for each name.
    if family.children:  # rarely needed
        children.hand_down(declarations)
    spellings = spellings_of(declarations, home.scope.facts)
    declarations = _unite(declarations, spellings)
    # 7. Checks of types. Later than the union, because one declaration may have properties that another lacks.
    for declaration in declarations:
        declaration.check()
    _refuse_contradictions(declarations, spellings)
    # 8. References and order.
    links = link(declarations, known, family.of_no_item, spellings)
    indexes = order(declarations, links)
    exports, export_problems = _exported(text, home)
    pre_message, post_message = text.message("pre_message", home), text.message("post_message", home)
    # 9. All problems at once.
    family.raise_any()
    return Manifest(
        declarations,
        indexes,
        links,
        name=text.name,
        files=home.files,
        scope=home.scope,
        data=home.data,
        fail_on_error=home.fail_on_error,
        give_up_after=text.run.get("give_up_after", 0),
        trial=text.trial(),
        exports=exports,
        export_problems=export_problems,
        pre_message=pre_message,
        post_message=post_message,
        warnings=list(dict.fromkeys(family.warnings)),
        of_no_item=frozenset(family.of_no_item),
        texts=list({(text.source, text.text): text for text in family.texts}.values()),
    )


def _exported(text: ManifestText, home: Home) -> tuple[dict[str, Any], list[Problem]]:
    """Return the exports of this host, and the problems of all others. Problems do not reject the manifest."""
    declared, _ = text.exports()
    if not declared or not home.has_data:
        return {}, []

    return exported_values(text, declared, home.scope)


def _declared(
    text: ManifestText,
    inputs: Inputs,
    family: Family,
    child: Child | None = None,
) -> tuple[Home, list[Declaration]]:
    """Run the steps 1 to 5 for one manifest. Return its home and its resources, a child's before its ``apply``."""

    def read_child(name: str, child: Child) -> list[Declaration]:
        return _declared(ManifestText.of_file(Path(child.path), name), inputs, family, child)[1]

    # 1. Keys.
    text.check_keys()
    if child is not None:
        text.refuse_libraries()
    # 2. Data.
    home = home_of(text, inputs, family, child)
    family.warnings += [warning for notes in home.data.annotations for warning in notes.warnings]
    family.warnings += text.unheard_messages() if child is not None else []
    family.texts.append(text.problems)
    declarations: list[Declaration] = []
    # 3. Lists of resources.
    for item in _lists_of(text, home, family):
        for entry in read_entries(item.value, item.path, item.problems):
            processes.check()
            # 4. Entry, or items of its loop.
            declared = list(_declared_by(entry, item.problems, home, inputs, item.mask))
            if not declared:
                family.of_no_item.update(_names_of_none(entry, home))
            for declaration in declared:
                # 5. Child manifest.
                if entry.type_name == children.TYPE:
                    declarations += children.expand(declaration, family, read_child)
                declarations.append(declaration)
    return home, declarations


def _names_of_none(entry: Entry, home: Home) -> Iterator[Reference]:
    """Yield the names of an entry without resources on this machine. References to them are empty."""
    if entry.loop is not None:
        # A name with expressions matches no resource, but patterns may match it.
        yield entry.loop.written_out(home.files) or Reference(entry.loop.reference)
    if entry.label:
        yield Reference.to(LABEL, entry.label)
    alias = entry.properties.get("alias")
    if entry.loop is None and isinstance(alias, str) and not has_expression(alias):
        yield Reference.to(entry.type_name, alias)


def _declared_by(
    entry: Entry, problems: Problems, home: Home, inputs: Inputs, mask: Mask | None
) -> Iterable[Declaration]:
    if entry.loop is None:
        declaration = declare(entry, problems, home, inputs, mask)
        return () if declaration is None else (declaration,)
    return unrolled(entry, entry.loop, problems, home, inputs, mask)


class _List(msgspec.Struct, frozen=True):
    """The list of resources of one text, as written."""

    value: Any
    path: KeyPath
    """The path of the list in its text."""
    problems: Problems
    mask: Mask | None = None
    """Set if the list was rendered with secrets."""


def _lists_of(text: ManifestText, home: Home, family: Family) -> Iterator[_List]:
    if "resources" in text.run:
        path = (*text.run_path, "resources")
        yield _List(text.run["resources"], path, text.problems)
    if "resources_template" in text.run:
        yield _rendered_list(text, home, family)


def _rendered_list(text: ManifestText, home: Home, family: Family) -> _List:
    # 3 % of an idle apply, and few manifests have such a list
    from puller.templates.rendering import render_list

    path, mask = text.run["resources_template"], None
    if not isinstance(path, str):
        text.refuse("resources_template", f"resources_template is {path!r}, expected a path")
        return _List([], (), text.problems)
    if not home.has_data:
        return _List([], (), text.problems)
    try:
        rendered = render_list(path, home.scope, home.files, text.list_engine)
        # Children may have templates of the same name, so paths start at the directory of the top manifest.
        problems = Problems.of_text(f"{join(dirname(text.name), path)} (rendered)", rendered.text)
        problems.is_rendered = True
        if rendered.is_secret:
            problems.mask = mask = Masks().of(home.data.all)
        family.texts.append(problems)
        value = text.converted(parsing.load_yaml(rendered.text, problems.source))
    except (HieraError, ResourceError) as error:
        text.refuse_error("resources_template", error, mask)
        return _List([], (), text.problems)
    return _List(value, (), problems, mask)


def _unite(declarations: list[Declaration], spellings: Spellings) -> list[Declaration]:
    """Return one declaration for each managed object. Declarations that do not agree are a problem."""
    objects = objects_of(declarations, spellings)
    seen: dict[Key | Child, int] = {}
    retained: list[Declaration] = []
    for declaration in declarations:
        # One child manifest may be applied several times, each with its own data. Two loops that cannot be evaluated
        # may look alike, but declare different resources.
        key = declaration.child or (declaration.type.type_name, declaration.properties.name)
        first = seen.setdefault(key, len(retained)) if declaration.loop is None else len(retained)
        if (managed := objects.get(id(declaration))) is not None:
            first = seen[key] = seen.setdefault(managed, first)
        if first == len(retained):
            retained.append(declaration)
        else:
            retained[first] = _united(retained[first], declaration)
    return retained


def _refuse_contradictions(declarations: Sequence[Declaration], spellings: Spellings) -> None:
    for between in find_contradictions(declarations, spellings):
        between.second.problems.note(between.problem())


def _united(first: Declaration, second: Declaration) -> Declaration:
    try:
        return agreed(first, second)
    except Disagreement as disagreement:
        disagreement.second_declaration.problems.note(disagreement.problem())
        return first


_FUNCTIONS = frozenset(("cycler", "dict", "joiner", "namespace", "range"))
"""Functions of templates outside of their scope."""


def unrolled(
    entry: Entry, loop: Loop, problems: Problems, home: Home, inputs: Inputs, mask: Mask | None
) -> Iterator[Declaration]:
    """Yield the declarations of a loop, in the order of its items.

    1. Reject names that hide other names.
    2. Evaluate the list or mapping. If that fails, one failed declaration represents all items.
    3. Check the entry of a loop without items.
    4. Declare each item like an entry. Items with the same name are one resource, and must agree.
    """
    # 1. Names.
    loop = _without_hidden_names(entry, loop, problems, home)
    # 2. Items.
    scope = home.scope
    if inputs.watch is not None:
        scope = inputs.watch(problems.source, (*entry.path, FOR), home.scope, scope, home.files)
    why: tuple[Problem, ...]
    try:
        items, why = loop.items(scope, home.files) if loop.clauses else [], ()
    except ResourceError as error:
        items, why = [], tuple(replaced(problem, property=FOR) for problem in error.problems)
    # 3. Loop without items.
    if not items and (declaration := declare_unlooped(entry, problems, home, why)) is not None:
        if why or not loop.clauses:
            yield declaration
        else:
            declaration.check()
    texts, scopes = _texts(entry, loop, scope), LoopScopes(home.scope, loop, home.files)
    for number, values in enumerate(items):
        processes.check()
        item = Item(loop, values, number, home.scope, home.files)
        # 4. Item.
        first = Entry(entry.type_name, dict(entry.properties), entry.path, item=item, label=entry.label)
        declaration = declare(first, problems, home, inputs, mask, scopes.of(values), texts)
        if declaration is not None:
            yield declaration


def _without_hidden_names(entry: Entry, loop: Loop, problems: Problems, home: Home) -> Loop:
    """Return the loop, or a loop without clauses if one of its names hides another name. Record that problem."""
    hidden = next((name for name in loop.names if name in home.scope.names or name in _FUNCTIONS), None)
    if hidden is None:
        return loop
    sentence = f"for has the name {hidden}, which already has another meaning, so choose another name"
    problems.add((*entry.path, FOR), sentence, str(loop.reference), ProblemCode.INVALID_LOOP, property=FOR)
    return Loop.of((), loop.reference)


def _texts(entry: Entry, loop: Loop, scope: Scope) -> dict[str, Repeated]:
    """Return the parsed texts of an entry that have expressions. Invalid texts are left out."""
    texts = {}
    for value in entry.properties.values():
        if isinstance(value, str) and has_expression(value):
            with suppress(HieraError):
                texts[value] = Repeated(value, scope, loop.names)
    return texts
