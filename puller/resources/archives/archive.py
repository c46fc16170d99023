"""The ``archive`` resource: an archive that is fetched, and put into a directory (``resources.md`` section 7).

* What was fetched is in its place only when it is what was asked for, and in the directory only when all of it is.
* What a directory was filled from is on record (``puller.resources.archives.receipts``): contents of another archive,
  of another checksum or of an extraction that did not end are replaced.
* What is extracted is what was hashed: the file is opened once.
* Nothing is fetched for what can be repaired here: an owner, a group, an extraction of a file that is right.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from bundles.errors import FormatError
from hiera.values.secrets import Secret
from puller.errors import ResourceError, file_problem
from puller.resources.archives.kinds import ENDINGS, Kind, find_kind
from puller.resources.archives.receipts import (
    Filling,
    Fingerprint,
    Place,
    Receipts,
    has_one_purpose,
    identity_of,
)
from puller.resources.base import Difference, Properties, PropertyError, Resource
from puller.resources.owners import group_id, group_name, user_id, user_name
from puller.system.protocol import Attributes, require_one_name
from puller.values.duration import Duration

if TYPE_CHECKING:  # opening archives is imported when one is opened
    from puller.resources.archives.filling import Filled, Surroundings
    from puller.resources.archives.opened import Opened

_KINDS = {
    stat.S_IFREG: "present",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "fifo",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
_NOT_REPLACED = ("directory", "character device", "block device")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


class ArchiveProperties(Properties, frozen=True):
    """The properties of an archive."""

    url: str | None = None
    """Where to fetch it: an ``http(s)://`` URL of a file of the same kind as ``name``."""
    checksum: str | None = None
    """SHA-256 of the archive, in hexadecimal."""
    extract_parent: str | None = None
    """The directory to put its contents into; made when missing."""
    creates: str | None = None
    """A path that the contents bring; while it is there, of this archive or by another hand, nothing is fetched."""
    cleanup: bool = False
    """Remove the archive when its contents are in place; wants ``extract_parent`` and ``creates``."""
    owner: str | int | None = None
    """Owner of the archive and of its contents: name, or id when all digits."""
    group: str | int | None = None
    """Group of both: name, or id when all digits."""
    username: str | None = None
    """For basic authentication."""
    password: Secret | None = None
    """For basic authentication."""
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    """Further headers of the request; an ``Authorization`` goes before ``username``."""
    timeout: Duration = Duration(600.0)
    """The most time that fetching may take, with redirects and retries."""


class ArchiveState(msgspec.Struct, frozen=True):
    """What is there: at the archive's path, at ``creates``, and on record for the directory."""

    found: os.stat_result | None
    sha256: str = ""
    """Of the archive, where it is asked for."""
    identity: tuple[int, ...] = ()
    """Of the file that has this checksum, as far as that can be told."""
    creates_exists: bool = False
    place: Place | None = None
    """What is known of the directory."""
    filling: Filling | None = None
    """What this archive has put into it."""
    brought_by: str = ""
    """Which other archive has brought ``creates``."""
    missing: str = ""
    """Something that this archive has put there, and that is not there any more."""

    @property
    def is_file(self) -> bool:
        return self.found is not None and stat.S_ISREG(self.found.st_mode)


class _Plan(msgspec.Struct, frozen=True):
    """What is to be done, in this order."""

    download: bool = False
    repair: bool = False
    """Owner and group of the archive."""
    extract: bool = False
    clean_up: bool = False
    remove: bool = False


class Archive(Resource[ArchiveProperties, ArchiveState]):
    """An archive, and what it holds."""

    type_name = "archive"
    properties_type = ArchiveProperties
    providers = ("http",)
    secret_properties = frozenset({"password", "headers"})

    @property
    def _receipts(self) -> Receipts:
        state = self.context.state_directory
        return Receipts(None if state is None else state / "archives")

    @property
    def _attended(self) -> set[str]:
        """The archives that this run has come to, by name."""
        attended: set[str] = self.context.shared.setdefault(Archive, set())
        return attended

    @property
    def _beside(self) -> set[str]:
        return self._attended - {self.properties.name}

    def look(self) -> ArchiveState:
        properties, system = self.properties, self.context.system
        found = system.lstat(properties.name)
        if properties.ensure == "absent":
            return ArchiveState(found)
        self._attended.add(properties.name)
        sha256, identity = self._checksum(found)
        creates_exists = properties.creates is not None and system.exists(properties.creates)
        state = ArchiveState(found, sha256, identity, creates_exists)
        if (parent := properties.extract_parent) is None:
            return state
        place = self._receipts.place(parent)
        filling = place.find(self.properties.name, self.properties.checksum or state.sha256)
        return msgspec.structs.replace(
            state,
            place=place,
            filling=filling,
            brought_by=self._brought_by(place) if state.creates_exists and filling is None else "",
            missing=self._missing_entry(parent, filling),
        )

    def differences(self, actual: ArchiveState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        plan, properties = self._plan(actual), self.properties
        if plan.remove:
            return [Difference("ensure", _state_of(actual), "absent")]
        found = []
        if plan.download and actual.is_file:
            found.append(Difference("checksum", actual.sha256, str(properties.checksum)))
        elif plan.download:
            found.append(Difference("ensure", _state_of(actual), "present"))
        if plan.repair:
            found += self._owner_differences(actual)
        if plan.extract:
            why = self._why_extract(actual) or "of the archive before"
            found.append(Difference("contents", why, self._wanted_contents(actual, why)))
        if plan.clean_up:
            found.append(Difference("cleanup", "not done", "done"))
        return found

    def change(self, differences: Sequence[Difference], actual: ArchiveState) -> None:
        plan, properties, system = self._plan(actual), self.properties, self.context.system
        self._refuse_what_cannot_be(actual, plan)
        if plan.remove and actual.found is not None:
            system.remove(properties.name, actual.found)
            self._receipts.forget(properties.name)
            return
        with ExitStack() as stack:
            fetched = self._download(stack) if plan.download else None
            if plan.repair and actual.found is not None:
                attributes = Attributes(*self._ids(), stat.S_IMODE(actual.found.st_mode))
                system.set_attributes(properties.name, attributes, actual.found)
            filled = self._extract(fetched or self._open(stack, actual), plan) if plan.extract else None
            if not plan.clean_up:
                self._remember(fetched, actual, plan)
            if filled is not None:  # last, as the next run does again what is not finished
                self._finish(filled)
        if plan.clean_up and (found := system.lstat(properties.name)) is not None:
            system.remove(properties.name, found)
            self._receipts.forget(properties.name)

    def noop_message(self, differences: Sequence[Difference], actual: ArchiveState) -> str:
        del differences
        plan, properties, expect = self._plan(actual), self.properties, self.context.system.expect
        self._refuse_what_cannot_be(actual, plan)
        expect(properties.name, "absent" if plan.remove or plan.clean_up else "file")
        if plan.extract and properties.extract_parent is not None:
            expect(properties.extract_parent, "directory")
            if properties.creates is not None:
                expect(properties.creates, "file")
        parts = {
            "Would have downloaded": plan.download,
            "Would have updated attributes": plan.repair,
            "Would have extracted": plan.extract,
            "Would have removed what the new archive does not have": self._leaves_over(actual, plan),
            "Would have cleaned up": plan.clean_up,
            "Would have removed": plan.remove,
        }
        return ". ".join(part for part, is_part in parts.items() if is_part)

    def reach(self) -> str:
        """What an archive holds is known once it is here."""
        return self.properties.extract_parent or ""

    def final_ensure(self, actual: ArchiveState) -> str:
        return _state_of(actual)

    def describe(self, actual: ArchiveState) -> dict[str, Any]:
        found = actual.found
        described: dict[str, Any] = {"ensure": self.final_ensure(actual)}
        if found is not None:
            described |= {
                "owner": user_name(found.st_uid),
                "group": group_name(found.st_gid),
                "mode": f"{stat.S_IMODE(found.st_mode):04o}",
            }
        if actual.is_file and found is not None:
            described |= {"size": found.st_size, "sha256": actual.sha256 or self._measure()[0]}
        filled = [
            f"{place.directory}: {filling}"
            for place, filling in self._receipts.places_of(self.properties.name)
        ]
        return {**described, "extracted": filled}

    @classmethod
    def on_record(cls, properties: ArchiveProperties, state_directory: Path | None) -> list[str]:
        if properties.ensure == "absent" or properties.extract_parent is None:
            return []
        receipts = Receipts(None if state_directory is None else state_directory / "archives")
        try:
            place = receipts.place(properties.extract_parent)
        except OSError as error:
            return [file_problem(error, "cannot be read")]
        lost = [f"{place.directory}: an earlier receipt could not be read"] if place.lost else []
        return lost + [f"{place.directory} holds {filling}" for filling in place.fillings]

    # What is there

    def _checksum(self, found: os.stat_result | None) -> tuple[str, tuple[int, ...]]:
        """Of the archive, as far as anything depends on it; read only if it is not the file that was read before."""
        properties = self.properties
        if found is None or not stat.S_ISREG(found.st_mode):
            return "", ()
        known = self._receipts.fingerprint(properties.name)
        if known is not None and known.file == identity_of(found):
            return known.sha256, known.file
        if properties.checksum is None and properties.extract_parent is None:
            return "", ()
        return self._measure()

    def _measure(self) -> tuple[str, tuple[int, ...]]:
        from puller.resources.archives.opened import measure

        return measure(self.properties.name)

    def _brought_by(self, place: Place) -> str:
        """Which other archive has brought ``creates``; empty when it was none that is on record."""
        filler = self._receipts.filler(str(self.properties.creates))
        if filler is None:
            return ""
        there, filling = filler
        where = "" if there.directory == place.directory else f" in {there.directory}"
        return f"{filling.archive}{where}"

    def _missing_entry(self, parent: str, filling: Filling | None) -> str:
        if filling is None or not filling.finished:
            return ""
        paths = (os.path.join(parent, entry) for entry in filling.entries)
        return next((path for path in paths if self.context.system.lstat(path) is None), "")

    # What is to be done

    def _plan(self, actual: ArchiveState) -> _Plan:
        properties = self.properties
        if properties.ensure == "absent":
            return _Plan(remove=actual.found is not None)
        extracts = properties.extract_parent is not None
        is_in_place = not self._why_extract(actual)
        download = self._must_download(actual, is_in_place=is_in_place)
        extract = extracts and (download or not is_in_place)
        clean_up = properties.cleanup and (actual.is_file or download or extract)
        repair = actual.is_file and not (download or clean_up) and self._is_others(actual)
        return _Plan(download, repair, extract, clean_up)

    def _must_download(self, actual: ArchiveState, *, is_in_place: bool) -> bool:
        properties = self.properties
        if not actual.is_file:
            return not (actual.creates_exists and is_in_place)
        if properties.checksum in (None, actual.sha256):
            return False
        # An old archive that is to be removed anyway: what it should have been is in place already.
        return not (properties.cleanup and actual.filling is not None and is_in_place)

    def _why_extract(self, actual: ArchiveState) -> str:
        """Why the contents are not in place, in words; empty when they are."""
        properties, filling = self.properties, actual.filling
        if properties.extract_parent is None:
            return ""
        if properties.creates is not None and not actual.creates_exists:
            return f"without {properties.creates}"
        if filling is None:
            return self._why_extract_first(actual)
        if filling.replaced_by and filling.replaced_by != properties.name:
            return f"of {filling.replaced_by}"
        if filling.replaced_by or not filling.finished:
            return "half extracted"
        if (wanted := properties.checksum or actual.sha256) and filling.sha256 != wanted:
            return f"of sha256 {filling.sha256[:12]}…"
        return f"without {actual.missing}" if actual.missing and properties.creates is None else ""

    def _why_extract_first(self, actual: ArchiveState) -> str:
        if actual.brought_by:
            return f"of {actual.brought_by}"
        if actual.place is not None and actual.place.lost:
            return "of an archive that is not known, as its receipt cannot be read"
        # Put there by another hand, and creates is the sign of it.
        return "" if self.properties.creates is not None else "not extracted"

    def _wanted_contents(self, actual: ArchiveState, why: str) -> str:
        wanted = self.properties.checksum or actual.sha256
        if why.startswith("of sha256") and wanted:
            return f"of sha256 {wanted[:12]}…"
        return (
            f"of {self.properties.name}" if why.startswith("of /") else f"in {self.properties.extract_parent}"
        )

    def _leaves_over(self, actual: ArchiveState, plan: _Plan) -> bool:
        """In noop: whether what older archives have put there for the same purpose may be left over.

        Raises ``ResourceError`` for what the extraction of an archive that is on disk would fail at.
        """
        if actual.place is None or not plan.extract:
            return False
        if not plan.download:
            return self._foretell(actual)
        new = self._filling(self.properties.checksum or "")
        rivals = (other for other in actual.place.fillings if other.archive not in self._beside)
        return any(has_one_purpose(other, new) and new.is_another(other) for other in rivals)

    def _foretell(self, actual: ArchiveState) -> bool:
        from puller.resources.archives.filling import Plan
        from puller.resources.archives.foretelling import listed

        parent = self.properties.extract_parent or "/"
        try:
            with listed(self.properties.name, self._kind, parent) as new:
                filling = self._filling(actual.sha256)
                return bool(Plan(self._receipts, filling, new, self._surroundings(parent)).leftovers)
        except FormatError as error:
            raise self._not_understood(error) from error

    def _surroundings(self, parent: str) -> "Surroundings":
        from puller.resources.archives.filling import Surroundings

        return Surroundings(parent, self._beside, self.context.declared("file"))

    def _filling(self, sha256: str) -> Filling:
        return Filling(archive=self.properties.name, sha256=sha256, creates=self.properties.creates or "")

    def _is_others(self, actual: ArchiveState) -> bool:
        return actual.found is not None and (actual.found.st_uid, actual.found.st_gid) != self._ids()

    def _ids(self) -> tuple[int, int]:
        return user_id(self.properties.owner, self.context), group_id(self.properties.group, self.context)

    def _owner_differences(self, actual: ArchiveState) -> list[Difference]:
        found, (uid, gid) = actual.found, self._ids()
        differences = []
        if found is not None and found.st_uid != uid:
            differences.append(Difference("owner", user_name(found.st_uid), str(self.properties.owner)))
        if found is not None and found.st_gid != gid:
            differences.append(Difference("group", group_name(found.st_gid), str(self.properties.group)))
        return differences

    def _refuse_what_cannot_be(self, actual: ArchiveState, plan: _Plan) -> None:
        """Raise for what ``change`` would fail at, so that noop predicts it."""
        name, system = self.properties.name, self.context.system
        if (plan.remove or plan.download) and _state_of(actual) in _NOT_REPLACED:
            what = "removed" if plan.remove else "replaced"
            raise ResourceError(f"{name} is a {_state_of(actual)}, which is not {what} by an archive")
        if actual.found is not None and (plan.remove or plan.download or plan.clean_up):
            from puller.system.mounts import refuse_mounted

            refuse_mounted(name, "replaced" if plan.download else "removed")
        if plan.remove:
            return
        self._ids()
        if plan.repair and actual.found is not None:
            require_one_name(name, actual.found)
        parent = os.path.dirname(name)
        if plan.download and not system.is_directory(parent) and not self.context.uncertain(parent):
            raise ResourceError(f"directory {parent} does not exist")
        if plan.extract:
            self._require_place()

    def _require_place(self) -> None:
        """Missing directories are made; something else in the place of one is in the way."""
        place, system = self.properties.extract_parent or "/", self.context.system
        while not system.is_directory(place):
            if system.exists(place):
                raise ResourceError(f"{place} is not a directory")
            place = os.path.dirname(place)

    # Doing it

    @property
    def _kind(self) -> Kind:
        return find_kind(self.properties.name) or Kind.TAR  # never neither: checked at load

    def _download(self, stack: ExitStack) -> "Opened":
        from puller.resources.archives.download import Request, download  # and with it what talks HTTP
        from puller.resources.archives.limits import LIMITS
        from puller.resources.archives.progress import progress_bar

        properties = self.properties
        request = Request(
            url=properties.url or "",
            kind=self._kind,
            checksum=properties.checksum,
            timeout=properties.timeout,
            limit=LIMITS.archive,
            username=properties.username,
            password=properties.password,
            headers=properties.headers,
        )
        uid, gid = self._ids()
        with progress_bar(os.path.basename(properties.name)) as progress:
            fetched = download(
                request, properties.name, uid=uid, gid=gid, before_placing=self._begin, progress=progress
            )
        stack.enter_context(fetched.stream)
        return fetched

    def _begin(self, sha256: str) -> None:
        """A new archive that is not extracted yet is not to be taken for what was there before."""
        if self.properties.extract_parent is not None:
            self._receipts.begin(self.properties.extract_parent, self._filling(sha256))

    def _open(self, stack: ExitStack, actual: ArchiveState) -> "Opened":
        from puller.resources.archives.opened import Opened, open_archive

        name = self.properties.name
        return Opened(name, stack.enter_context(open_archive(name)), actual.sha256)

    def _extract(self, archive: "Opened", plan: _Plan) -> "Filled":
        from puller.resources.archives.extract import unpacked
        from puller.resources.archives.filling import fill

        properties, system = self.properties, self.context.system
        parent = properties.extract_parent or "/"
        if not system.is_directory(parent):
            system.make_directory(parent, Attributes(os.geteuid(), os.getegid(), 0o755))
        uid, gid = self._ids()
        try:
            with unpacked(archive, self._kind, parent, uid=uid, gid=gid) as new:
                return fill(self._receipts, self._filling(archive.sha256), new, self._surroundings(parent))
        except FormatError as error:
            if plan.download and properties.checksum is None and (found := system.lstat(properties.name)):
                # Nobody has said that these bytes are right, so the next run asks for others.
                system.remove(properties.name, found)
            raise self._not_understood(error) from error

    def _finish(self, filled: "Filled") -> None:
        from puller.resources.archives.filling import finish

        finish(self._receipts, filled)
        for path in filled.changed:
            place = os.path.join(self.properties.extract_parent or "/", path)
            self.context.log(f"{place}: only the archive before had it; it was changed since, and stays")

    def _remember(self, fetched: "Opened | None", actual: ArchiveState, plan: _Plan) -> None:
        """Keep the checksum of the archive's file, as far as it is certain that it is of this file."""
        from puller.resources.archives.opened import measure_when_settled

        name, sha256, identity = self.properties.name, actual.sha256, actual.identity
        if self.properties.checksum is None and self.properties.extract_parent is None:
            return
        if fetched is not None and fetched.is_ours:
            sha256, identity = fetched.sha256, identity_of(os.fstat(fetched.stream.fileno()))
        elif fetched is not None or plan.repair:
            sha256, identity = measure_when_settled(name)
        if identity:
            self._receipts.remember(Fingerprint(archive=name, sha256=sha256, file=identity))

    def _not_understood(self, error: FormatError) -> ResourceError:
        return ResourceError(f"{self.properties.name}: {error}")

    # At load

    @classmethod
    def check(cls, properties: ArchiveProperties) -> Iterator[PropertyError]:
        if properties.ensure not in ("present", "absent"):
            yield PropertyError("ensure", f"is {properties.ensure!r}, wanted present or absent")
        for name in ("name", "extract_parent", "creates"):
            yield from _check_path(name, getattr(properties, name))
        if find_kind(os.path.basename(properties.name)) is None:
            yield PropertyError(
                "name", f"is {properties.name!r}, wanted one that ends in {', '.join(ENDINGS)}"
            )
        if properties.ensure == "present":
            yield from _check_present(properties)


def _check_present(properties: ArchiveProperties) -> Iterator[PropertyError]:
    yield from _check_url(properties)
    for required in ("owner", "group"):
        if getattr(properties, required) in (None, ""):
            what = "is missing; it is required unless ensure is absent"
            yield PropertyError(required, what, because=["ensure"])
    if properties.checksum is not None and not _CHECKSUM.fullmatch(properties.checksum):
        wanted = "64 lower-case hexadecimal digits (SHA-256)"
        yield PropertyError("checksum", f"is {properties.checksum!r}, wanted {wanted}")
    for required in ("extract_parent", "creates"):
        if properties.cleanup and getattr(properties, required) is None:
            yield PropertyError("cleanup", f"wants {required}", because=[required, "ensure"])
    if (properties.username is None) is not (properties.password is None):
        what = "and password are given together or not at all"
        yield PropertyError("username", what, because=["password"])
    if properties.timeout <= 0:
        yield PropertyError("timeout", "is 0, wanted a time that a download can end in")
    for name, value in properties.headers.items():
        text = value.reveal()
        if not _HEADER.fullmatch(name) or not (text and text.isascii() and text.isprintable()):
            yield PropertyError("headers", f"has {name!r}, whose name or value is not that of a header")


def _check_url(properties: ArchiveProperties) -> Iterator[PropertyError]:
    if properties.url is None:
        yield PropertyError("url", "is missing; it is required unless ensure is absent", because=["ensure"])
        return
    shown = repr(_shown(properties.url))
    try:
        parts = urlsplit(properties.url)
        _ = parts.port  # read here because it is the property that refuses ports that are no number
    except ValueError as error:
        what = str(error).partition(" as ")[0]  # what it cannot read as a port may be a part of a password
        yield PropertyError("url", f"is {shown}: {what}")
        return
    if parts.scheme not in ("http", "https") or not parts.hostname or not properties.url.isprintable():
        yield PropertyError("url", f"is {shown}, wanted an http:// or https:// URL")
        return
    kind, wanted = find_kind(parts.path.rpartition("/")[2]), find_kind(properties.name)
    if kind is None:
        yield PropertyError("url", f"is {shown}, wanted one that ends in {', '.join(ENDINGS)}")
    elif wanted is not None and kind is not wanted:
        yield PropertyError("url", f"is {shown}, which is a {kind}, and name is a {wanted}", because=["name"])


def _check_path(name: str, path: str | None) -> Iterator[PropertyError]:
    if path is not None and (
        not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path or "\0" in path
    ):
        wanted = "an absolute path without '.', '..' or doubled slashes"
        yield PropertyError(name, f"is {path!r}, wanted {wanted}")


def _shown(url: str) -> str:
    """Without what may be a secret: user information and query."""
    from bundles.masking import mask_location

    return mask_location(url).partition("?")[0]


def _state_of(actual: ArchiveState) -> str:
    if actual.found is None:
        return "absent"
    return _KINDS.get(stat.S_IFMT(actual.found.st_mode), "socket")
