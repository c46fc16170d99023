"""The pages of a fleet, generated from the store, and their output directory.

* A page is generated again only if its content has changed.
* Pages use relative links and load nothing from other sites. Any web server can serve them, and browsers can open the
  files directly.
* ``pages.json`` lists the generated files with a digest of their inputs. Outdated pages are removed. Other files in
  the directory stay.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from bundles.filesystem.safe_paths import OutputTree
from foundation.problem_pages import load_entries
from foundation.problems import ProblemCode
from puller.errors import SourceError, UsageError, file_problem
from puller.fleet.pages import environment
from puller.fleet.pages.environment import as_script_data, asset, css, make_environment, shown_time, template
from puller.fleet.store.queries import Reader
from puller.fleet.views import FleetView, HostRow, ReleaseView, RolloutView
from puller.values.foreign_text import visible
from puller.version import __version__

# The output directory. It may belong to another user, so ``bundles/filesystem/safe_paths.py`` writes the files.

LIST = "pages.json"
_SIZE_LIMIT = 256 * 1024 * 1024


class _Made(msgspec.Struct, tag_field="format", tag=1):
    """The files of the previous generation, each with a digest of its inputs."""

    files: dict[str, str] = {}


class Output:
    """Files below ``directory``. Methods raise ``SourceError``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tree = OutputTree(directory)
        self._has_list = False
        self._before = self._read()
        self._files: dict[str, str] = {}
        self.written = 0
        self.removed = 0

    def _read(self) -> dict[str, str]:
        try:
            made = msgspec.json.decode(self._tree.read(LIST, _SIZE_LIMIT), type=_Made)
        except FileNotFoundError:
            if self._directory.exists() and any(self._directory.iterdir()):
                detail = "is not empty, and no directory of pages"
                raise UsageError(
                    f"{self._directory}: {detail}: name a new or an empty one",
                    code=ProblemCode.UNWRITABLE_OUTPUT,
                ) from None
            return {}
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read")) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise SourceError(
                f"{self._directory / LIST}: is damaged: {error}",
                code=ProblemCode.INVALID_DOCUMENT,
                hint="remove it and the pages",
            ) from None
        self._has_list = True
        return made.files

    def is_made(self, name: str, of: str) -> bool:
        """Return whether a page with the same inputs exists. If so, keep it."""
        if self._before.get(name) == of and self._is_file(name):
            self._files[name] = of
            return True
        return False

    def write(self, name: str, data: bytes, of: str = "") -> None:
        """Write a page, unless the same page exists."""
        of = of or hashlib.sha256(data).hexdigest()
        if self.is_made(name, of):
            return
        try:
            if not self._has_list:
                # Written before the first page, so that after a kill the directory is still recognised.
                self._note(self._before)
                self._has_list = True
            # ``finish`` syncs all pages together, before it writes the list.
            self._tree.write(name, [data], durable=False)
        except OSError as error:
            path = self._directory / name
            raise SourceError(
                file_problem(error, "cannot be written", where=path), code=ProblemCode.UNWRITABLE_OUTPUT
            ) from error
        self._files[name] = of
        self.written += 1

    def finish(self) -> None:
        """Remove outdated pages, and write the list of pages."""
        try:
            self._tree.sync()
            # The list names old and new pages until the removal is complete, so that a kill leaves no unlisted file.
            self._note({**self._before, **self._files})
            for name in self._before.keys() - self._files.keys():
                if _is_ours(name):
                    self._tree.remove(name)
                    self.removed += 1
            self._note(self._files)
        except OSError as error:
            where = error.filename or self._directory
            raise SourceError(
                file_problem(error, "cannot be written", where=where), code=ProblemCode.UNWRITABLE_OUTPUT
            ) from error
        finally:
            self._tree.close()

    def _is_file(self, name: str) -> bool:
        try:
            return self._tree.is_file(name)
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read")) from error

    def _note(self, files: dict[str, str]) -> None:
        self._tree.write(LIST, [msgspec.json.encode(_Made(files))])


def _is_ours(name: str) -> bool:
    """Return whether a name can be that of a page. Other users may be able to write the list."""
    components = name.split("/")
    return len(components) <= 2 and all(part and part[0] != "." for part in components)


_MOST_RELEASES = 30
"""Maximum versions of a bundle with their own page, the newest ones. Each has a chart, which takes a moment."""
_ASSETS = ("style.css", "hosts.js")
_TEMPLATES = ("page.html", "parts.html", "host.html")
_COLUMNS = [
    "host",
    "page",
    "state",
    "why",
    "bundles",
    "bundles_text",
    "os",
    "heard",
    "heard_text",
    "since",
    "since_text",
    "search",
]

Progress = Callable[[int, int], None]
"""Receives the number of finished host pages, and the number of host pages to generate."""


class Made(msgspec.Struct, frozen=True):
    """The result of generating pages."""

    hosts: int
    written: int
    """Number of new or changed files."""
    removed: int


def make_pages(
    reader: Reader,
    directory: Path,
    *,
    name: str = "Fleet",
    refused: int = 0,
    progress: Progress = lambda done, all_: None,
) -> Made:
    """Generate the pages of the fleet in ``directory``, which is new, empty, or has earlier pages.

    ``name`` is the title of the fleet. Raises ``SourceError`` and ``UsageError``.
    """
    return _Making(reader, Output(directory), name, reader.fleet(refused), progress).run()


class _Making:
    def __init__(
        self, reader: Reader, output: Output, name: str, fleet: FleetView, progress: Progress
    ) -> None:
        self._reader = reader
        self._output = output
        self._fleet = fleet
        self._progress = progress
        self._environment = make_environment()
        self._common: dict[str, Any] = {
            "name": name,
            "made": fleet.made,
            "heard": fleet.heard,
            "puller": __version__,
            "rollouts": [rollout for bundle in fleet.bundles for rollout in bundle.rollouts],
            "releases_with_page": {
                (bundle.name, row.version)
                for bundle in fleet.bundles
                for row in bundle.versions[:_MOST_RELEASES]
            },
        }

    def run(self) -> Made:
        for file in _ASSETS:
            self._output.write(file, asset(file))
        self._resources()
        self._hosts()
        self._bundles()
        self._releases()
        self._failures()
        # Pages with links to others come last.
        self._list("hosts.html", **self._hosts_of_list())
        self._list("problems.html", entries=load_entries())
        for page in ("bundles.html", "failures.html", "index.html"):
            self._list(page)
        self._output.finish()
        return Made(len(self._reader.hosts), self._output.written, self._output.removed)

    def _hosts(self) -> None:
        """Generate the page of each host with a newer report or another state."""
        hosts = self._reader.hosts
        waiting = self._waiting()
        made_of = {
            name: self._digest(row, self._reader.run_of(name), waiting[name]) for name, row in hosts.items()
        }
        new = [name for name in hosts if not self._output.is_made(environment.host_page(name), made_of[name])]
        for done, view in enumerate(self._reader.details(new), start=1):
            page = environment.host_page(view.row.name)
            self._page(
                page,
                "host.html",
                "hosts.html",
                of=made_of[view.row.name],
                view=view,
                waiting_for=waiting[view.row.name],
            )
            self._progress(done, len(new))

    def _waiting(self) -> dict[str, list[tuple[RolloutView, datetime | None]]]:
        """Return the rollouts that each host waits for, with its turn."""
        waiting: dict[str, list[tuple[RolloutView, datetime | None]]] = defaultdict(list)
        for rollout in self._common["rollouts"]:
            for item in rollout.waiting:
                waiting[item.row.name].append((rollout, item.turn))
        return waiting

    def _digest(self, row: HostRow, run: str, waiting: list[tuple[RolloutView, datetime | None]]) -> str:
        # Whole percents, so that a report of one host does not change the pages of all waiting hosts.
        progress = [(rollout.bundle, rollout.version, rollout.percent) for rollout, _ in waiting]
        linked = [pair in self._common["releases_with_page"] for pair in row.bundles.items()]
        text = repr((row, run, progress, linked, self._templates, self._common["name"], __version__))
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

    @cached_property
    def _templates(self) -> str:
        return hashlib.sha256("".join(map(template, _TEMPLATES)).encode()).hexdigest()

    def _bundles(self) -> None:
        for bundle in self._fleet.bundles:
            view = self._reader.bundle(bundle.name)
            self._page(environment.bundle_page(bundle.name), "bundle.html", "bundles.html", view=view)

    def _releases(self) -> None:
        for view in self._all_releases():
            page = environment.release_page(view.bundle, view.row.version)
            self._page(page, "release.html", "bundles.html", view=view)

    def _all_releases(self) -> Iterator[ReleaseView]:
        for bundle in self._fleet.bundles:
            for row in bundle.versions[:_MOST_RELEASES]:
                yield self._reader.release(bundle.name, row.version)

    def _failures(self) -> None:
        groups = {group.failure.key: group for group in self._fleet.attention if group.failure is not None}
        for view in self._fleet.failures:
            page = environment.failure_page(view.key)
            self._page(page, "failure.html", "failures.html", view=view, group=groups.get(view.key))

    def _resources(self) -> None:
        """Generate the pages of resources. Other pages link only to resources in ``resources_with_page``."""
        result = self._reader.resources()
        self._common["resources_with_page"] = {item.reference for item in result}
        for view in result:
            whole = replace(view, recent=self._reader.recent(view.reference))
            self._page(
                environment.resource_page(view.reference), "resource.html", "resources.html", view=whole
            )
        self._list("resources.html", resources=result)

    def _hosts_of_list(self) -> dict[str, Any]:
        rows = list(self._reader.hosts.values())
        data = {"columns": _COLUMNS, "rows": [_data(row) for row in rows]}
        systems = sorted({row.system for row in rows if row.system})
        return {"rows": rows, "data": as_script_data(data), "systems": systems}

    def _list(self, page: str, **values: Any) -> None:
        self._page(page, page, page, view=self._fleet, **values)

    def _page(self, page: str, template: str, section: str, *, of: str = "", **values: Any) -> None:
        top = "../" * page.count("/")
        text = self._environment.get_template(template).render(
            **self._common, top=top, section=section, **values
        )
        self._output.write(page, text.encode("utf-8", "replace"), of)


def _data(row: HostRow) -> list[Any]:
    bundles = sorted(row.bundles.items())
    text = ", ".join(map(" ".join, bundles))
    heard = row.heard.timestamp() if row.heard else 0
    search = " ".join((row.name, row.why, row.system, text)).lower()
    page, state = environment.host_page(row.name), css(row.state)
    shown = [[visible(part) for part in pair] for pair in bundles]
    return [
        visible(row.name),
        page,
        state,
        visible(row.why),
        shown,
        visible(text),
        visible(row.system),
        heard,
        shown_time(row.heard),
        row.since.timestamp() if row.since else 0,
        shown_time(row.since),
        visible(search),
    ]
