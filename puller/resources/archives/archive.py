"""The ``archive`` resource: an archive that is downloaded and extracted (``docs/resources/archive.md``).

* A download is moved to its place only after verification. Members are moved to the directory only after all of them
  are extracted.
* The receipt of a directory lists its archives (``archive_receipts``). Contents of another archive, of another checksum
  or of an unfinished extraction are replaced.
* The file is opened once, so that the extracted content is the verified content.
* Local repairs need no download: an owner, a group, or the extraction of a valid file.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from bundles.errors import FormatError
from foundation.differences import ABSENT, Difference, changed, presence
from foundation.problems import ProblemCode
from puller.errors import ResourceError, file_problem
from puller.resources.archives.archive_properties import (
    ArchiveProperties,
    ArchiveState,
    Steps,
    check_properties,
    decide,
    find_contents_difference,
)
from puller.resources.archives.archive_receipts import (
    Filling,
    Fingerprint,
    Place,
    Receipts,
    has_one_purpose,
    identity_of,
)
from puller.resources.archives.compression import PROGRAMS, missing_program
from puller.resources.archives.download import Request, download
from puller.resources.archives.extract import Form, listed, unpacked
from puller.resources.archives.filling import Filled, Plan, Surroundings, fill, finish
from puller.resources.archives.members import (
    LIMITS,
    Kind,
    Opened,
    find_kind,
    measure,
    measure_when_settled,
    open_archive,
)
from puller.resources.base import PropertyError, Resource
from puller.resources.claims import Claim, Use, agree
from puller.resources.content_sources import short, verified
from puller.resources.owned_paths import OwnedPaths, owned_below
from puller.resources.paths import (
    attribute_differences,
    describe_attributes,
    group_id,
    mode_owned_by,
    require_makeable,
    require_parent,
    user_id,
)
from puller.system.local_paths import refuse_mounted
from puller.system.protocol import Attributes, require_one_name

_NOT_REPLACED = ("directory", "character device", "block device")


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
        """The names of the archives that this run has checked so far."""
        attended: set[str] = self.context.shared.setdefault(Archive, set())
        return attended

    @property
    def _beside(self) -> set[str]:
        return self._attended - {self.properties.name}

    def look(self) -> ArchiveState:
        properties, system = self.properties, self.context.system
        status = system.lstat(properties.name)
        if properties.ensure == "absent":
            return ArchiveState(status)
        self._attended.add(properties.name)  # from now on, its members belong to this run
        sha256, identity = self._checksum(status)
        creates_exists = properties.creates is not None and system.exists(properties.creates)
        state = ArchiveState(status, sha256, identity, creates_exists)
        if (parent := properties.extract_parent) is None:
            return state
        place = self._receipts.place(parent)
        filling = place.find(self._filling(self.properties.checksum or state.sha256))
        return msgspec.structs.replace(
            state,
            place=place,
            filling=filling,
            brought_by=self._brought_by(place) if state.creates_exists and filling is None else "",
            missing=self._missing_entry(parent, filling),
        )

    def differences(self, actual: ArchiveState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        steps, properties = self._steps(actual), self.properties
        if steps.remove:
            return [presence(actual.kind, ABSENT)]
        differences = []
        if steps.download and actual.is_file:
            differences.append(changed("checksum", short(actual.sha256), short(str(properties.checksum))))
        elif steps.download:
            differences.append(presence(actual.kind, "present"))
        if (steps.repair or (steps.download and actual.is_file)) and actual.found is not None:
            attributes = self._wanted_attributes(actual.found)
            differences += attribute_differences(actual.found, attributes, properties.owner, properties.group)
        if steps.extract:
            differences.append(
                find_contents_difference(properties, actual)
                or changed("contents", "of the previous archive", properties.name)
            )
        if steps.clean_up:
            differences.append(changed("cleanup", "not done", "done"))
        return differences

    def change(self, differences: Sequence[Difference], actual: ArchiveState) -> None:
        """Take the required steps (``docs/resources/archive.md``).

        1. Refuse impossible changes: another file type or a mount in the way, unknown owners, missing directories.
        2. Remove the archive if it should be absent. Its contents and their receipt stay.
        3. Download to a file beside the destination, verify it, and rename it (``download``). Before the rename, the
           receipt records the new archive.
        4. Repair owner and group of a file that is otherwise valid.
        5. Extract a private copy into a private directory, and move everything into place (``fill``). Before that, the
           receipt records that the extraction has begun.
        6. Cache the checksum of the archive file, so that the next run does not read it again.
        7. Finish the receipt after the private directory is removed.
        8. Clean up: remove the archive.
        """
        steps, properties, system = self._steps(actual), self.properties, self.context.system
        # 1. Refuse
        self._raise_predictable_failures(actual, steps)
        # 2. Remove
        if steps.remove and actual.found is not None:
            system.remove(properties.name, actual.found)
            self._receipts.forget(properties.name)
            return
        with ExitStack() as stack:
            # 3. Download; the open file is the one that is extracted
            fetched = self._download(stack) if steps.download else None
            # 4. Repair
            if steps.repair and actual.found is not None:
                chunks = system.read_chunks(properties.name)
                content = verified(chunks, actual.sha256, properties.name) if actual.sha256 else None
                attributes = self._wanted_attributes(actual.found)
                system.set_attributes(properties.name, attributes, actual.found, content)
            # 5. Extract
            filled = self._extract(fetched or self._open(stack, actual), steps) if steps.extract else None
            # 6. Remember
            if not steps.clean_up:
                self._remember(fetched, actual, steps)
            # 7. Finish last, because the next run repeats an unfinished extraction
            if filled is not None:
                self._finish(filled)
        # 8. Clean up
        if steps.clean_up and (status := system.lstat(properties.name)) is not None:
            system.remove(properties.name, status)
            self._receipts.forget(properties.name)

    def noop_message(self, differences: Sequence[Difference], actual: ArchiveState) -> str:
        del differences
        steps, properties, expect = self._steps(actual), self.properties, self.context.system.expect
        self._raise_predictable_failures(actual, steps)
        expect(properties.name, "absent" if steps.remove or steps.clean_up else "file")
        if steps.extract and properties.extract_parent is not None:
            expect(properties.extract_parent, "directory")
            if properties.creates is not None:
                expect(properties.creates, "file")
        pieces = {
            "Would have downloaded": steps.download,
            "Would have updated attributes": steps.repair,
            "Would have extracted": steps.extract,
            "Would have removed files that the new archive lacks": self._leaves_over(actual, steps),
            "Would have cleaned up": steps.clean_up,
            "Would have removed": steps.remove,
        }
        return ". ".join(part for part, is_part in pieces.items() if is_part)

    def reach(self) -> str:
        """Return the directory, because the members of an archive are unknown before the download."""
        return self.properties.extract_parent or ""

    def final_ensure(self, actual: ArchiveState) -> str:
        return actual.kind

    def is_there(self, actual: ArchiveState) -> bool:
        return actual.found is not None or actual.filling is not None

    def changed_paths(self, actual: ArchiveState) -> None:
        """Return ``None``: the members are unknown until the archive is downloaded and recorded."""

    def describe(self, actual: ArchiveState) -> dict[str, Any]:
        status = actual.found
        described: dict[str, Any] = {"ensure": self.final_ensure(actual)}
        if status is not None:
            described |= describe_attributes(status)
        if actual.is_file and status is not None:
            described |= {"size": status.st_size, "sha256": actual.sha256 or self._measure()[0]}
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

    # Current state

    def _checksum(self, found: os.stat_result | None) -> tuple[str, tuple[int, ...]]:
        """Return the checksum and identity of the archive if needed.

        Reads the file only if it changed since the last time.
        """
        properties = self.properties
        if found is None or not stat.S_ISREG(found.st_mode):
            return "", ()
        known = self._receipts.fingerprint(properties.name)
        # Nobody can set back the change time of an inode, so this is the file that was read then.
        if known is not None and known.file == identity_of(found):
            return known.sha256, known.file
        if properties.checksum is None and properties.extract_parent is None:
            return "", ()
        return self._measure()

    def _measure(self) -> tuple[str, tuple[int, ...]]:
        return measure(self.properties.name)

    def _brought_by(self, place: Place) -> str:
        """Return the recorded archive that created ``creates``, with its directory if it is another one.

        Empty if none did.
        """
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

    # Decisions

    def _steps(self, actual: ArchiveState) -> Steps:
        return decide(self.properties, actual, self._ids)

    def _leaves_over(self, actual: ArchiveState, steps: Steps) -> bool:
        """In noop: return whether members of older archives with the same purpose may be left over.

        Raises ``ResourceError`` if the extraction of an archive on disk would fail.
        """
        if actual.place is None or not steps.extract:
            return False
        if not steps.download:
            return self._predict_leftovers(actual)
        new = self._filling(self.properties.checksum or "")
        rivals = (other for other in actual.place.fillings if other.archive not in self._beside)
        return any(has_one_purpose(other, new) and new.is_another(other) for other in rivals)

    def _predict_leftovers(self, actual: ArchiveState) -> bool:
        parent = self.properties.extract_parent or "/"
        try:
            with listed(self.properties.name, self._form, parent) as new:
                filling = self._filling(actual.sha256)
                return bool(Plan(self._receipts, filling, new, self._surroundings(parent)).leftovers)
        except FormatError as error:
            raise ResourceError(
                f"{self.properties.name}: {error}", code=ProblemCode.INVALID_ARCHIVE
            ) from error

    def _surroundings(self, parent: str) -> "Surroundings":
        return Surroundings(parent, self._beside, lambda: self._owned_below(parent))

    def _owned_below(self, directory: str) -> OwnedPaths:
        reference = f"{self.type_name}#{self.properties.name}"
        return owned_below(directory, self.context, reference, spares_work=False)

    def _filling(self, sha256: str) -> Filling:
        properties = self.properties
        return Filling(
            archive=properties.name,
            sha256=sha256,
            creates=properties.creates or "",
            stripped=properties.strip_components,
        )

    def _ids(self) -> tuple[int, int]:
        return user_id(self.properties.owner, self.context), group_id(self.properties.group, self.context)

    def _wanted_attributes(self, found: os.stat_result) -> Attributes:
        """Return the desired owner and group of the archive file, with its current mode."""
        ids = self._ids()
        return Attributes(*ids, stat.S_IMODE(mode_owned_by(*ids, found)))

    def _raise_predictable_failures(self, actual: ArchiveState, steps: Steps) -> None:
        """Raise for a predictable failure of ``change``, so that noop reports it."""
        name, system = self.properties.name, self.context.system
        if (steps.remove or steps.download) and actual.kind in _NOT_REPLACED:
            detail = "removed" if steps.remove else "replaced"
            raise ResourceError(
                f"{name} is a {actual.kind}, which is not {detail} by an archive",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if actual.found is not None and (steps.remove or steps.download or steps.clean_up):
            refuse_mounted(name, "replaced" if steps.download else "removed")
        if steps.remove:
            return
        self._ids()
        if steps.repair and actual.found is not None:
            require_one_name(name, actual.found)
        if steps.download:
            require_parent(name, self.context)
        if steps.extract:
            require_makeable(self.properties.extract_parent or "/", system)
            if (missing := missing_program(self._kind)) and not self.context.uncertain(PROGRAMS):
                raise missing

    # Changes

    @property
    def _kind(self) -> Kind:
        return find_kind(self.properties.name) or Kind.TAR  # names are checked at load

    @property
    def _form(self) -> Form:
        return Form(self._kind, self.properties.strip_components)

    def _download(self, stack: ExitStack) -> "Opened":
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
        fetched = download(request, properties.name, uid=uid, gid=gid, before_placing=self._begin)
        stack.enter_context(fetched.stream)
        return fetched

    def _begin(self, sha256: str) -> None:
        """Record a new archive before its extraction, so that its members do not count as complete."""
        if self.properties.extract_parent is not None:
            self._receipts.begin(self.properties.extract_parent, self._filling(sha256))

    def _open(self, stack: ExitStack, actual: ArchiveState) -> "Opened":
        name = self.properties.name
        return Opened(name, stack.enter_context(open_archive(name)), actual.sha256)

    def _extract(self, archive: "Opened", steps: Steps) -> Filled:
        properties, system = self.properties, self.context.system
        parent = properties.extract_parent or "/"
        if not system.is_directory(parent):
            system.make_directory(parent, Attributes(os.geteuid(), os.getegid(), 0o755))
        uid, gid = self._ids()
        try:
            with unpacked(archive, self._form, parent, uid=uid, gid=gid) as new:
                return fill(self._receipts, self._filling(archive.sha256), new, self._surroundings(parent))
        except FormatError as error:
            if steps.download and properties.checksum is None and (status := system.lstat(properties.name)):
                # Without a checksum the download is unverified, so the next run downloads it again.
                system.remove(properties.name, status)
            raise ResourceError(
                f"{self.properties.name}: {error}", code=ProblemCode.INVALID_ARCHIVE
            ) from error

    def _finish(self, filled: Filled) -> None:
        finish(self._receipts, filled)
        for path in filled.changed:
            place = os.path.join(self.properties.extract_parent or "/", path)
            self.context.log(
                f"{place}: only the previous archive has it, but it was changed since, so it stays"
            )

    def _remember(self, fetched: "Opened | None", actual: ArchiveState, steps: Steps) -> None:
        """Cache the checksum of the archive file, provided that it certainly belongs to this file."""
        name, sha256, identity = self.properties.name, actual.sha256, actual.identity
        # The checksum is not needed then (see ``_checksum``).
        if self.properties.checksum is None and self.properties.extract_parent is None:
            return
        if fetched is not None and fetched.is_ours:
            sha256, identity = fetched.sha256, identity_of(os.fstat(fetched.stream.fileno()))
        elif fetched is not None or steps.repair:
            sha256, identity = measure_when_settled(name)
        if identity:
            self._receipts.remember(Fingerprint(archive=name, sha256=sha256, file=identity))

    # Loading of the manifest

    @classmethod
    def places(cls, properties: ArchiveProperties) -> Iterator[str]:
        yield from filter(None, (properties.name, properties.extract_parent, properties.creates))

    @classmethod
    def claims(cls, properties: ArchiveProperties) -> Iterator[Claim]:
        if properties.ensure == "absent":
            yield Claim(properties.name, Use.ABSENT)
        else:
            # With ``cleanup`` or ``creates``, the archive itself may be missing.
            is_needed = not properties.cleanup and properties.creates is None
            yield Claim(properties.name, Use.WHOLE if is_needed else Use.KEPT)
            if properties.extract_parent is not None:
                yield Claim(properties.extract_parent, Use.CONTENTS)
            if properties.creates is not None:
                yield Claim(properties.creates, Use.ANY)

    @classmethod
    def fills(cls, properties: ArchiveProperties) -> tuple[str, ...]:
        return () if properties.extract_parent is None else (properties.extract_parent,)

    @classmethod
    def check(cls, properties: ArchiveProperties) -> Iterator[PropertyError]:
        return check_properties(properties)

    @classmethod
    def agree(cls, first: ArchiveProperties, second: ArchiveProperties) -> ArchiveProperties:
        """Merge two declarations.

        ``creates`` and ``cleanup`` must be equal, because without them the archive must exist.
        """
        return agree(first, second, exact=("creates", "cleanup", "headers"))
