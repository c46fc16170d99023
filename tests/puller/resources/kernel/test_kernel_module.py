"""The kernel_module resource on a simulated kernel: files below a directory, and a modprobe that changes them.

The simulated modprobe follows kmod's manual pages and messages. ``tests/system/test_kernel_modules.py`` lets the real
modprobe read the files that Puller writes.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from puller.errors import ManifestError, ResourceError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.resources.base import PropertyError, Resource
from puller.resources.kernel import module_files
from puller.resources.kernel.kernel_module import KernelModule, LeftoverKernelModule
from puller.resources.kernel.module_files import Modules
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

AVAILABLE = ("br_netfilter", "dummy", "foo_bar", "user_of_dummy", "cramfs", "kvm")


class Kernel(LocalSystem):
    """A simulated kernel with files below ``root``, and its modprobe."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.ran: list[str] = []

    @property
    def loaded(self) -> set[str]:
        return {line.split()[0] for line in (self.root / "proc/modules").read_text().splitlines()}

    def use(self, name: str, *, references: int = 0, users: str = "-") -> None:
        """Add a module to the loaded modules."""
        with (self.root / "proc/modules").open("a") as stream:
            stream.write(f"{name} 16384 {references} {users} Live 0x0000000000000000\n")

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        words = [*command.arguments]
        self.ran.append(" ".join(words))
        assert words.pop(0) == "modprobe"
        assert words.pop(-2) == "--"
        name = words.pop().replace("-", "_")
        error = self._unload(name) if words == ["-r"] else self._load(name)
        return Completed(1 if error else 0, None, False, "", f"modprobe: {error}" if error else "", 0.0)

    def _load(self, name: str) -> str:
        for path in sorted((self.root / "etc/modprobe.d").glob("*.conf")):
            if f"install {name} /bin/false" in path.read_text():
                return "ERROR: Error running install command '/bin/false'"
        if name not in AVAILABLE:
            return f"FATAL: Module {name} not found in directory /lib/modules/6.1"
        if name not in self.loaded:
            self.use(name)
            parameters = self.root / "sys/module" / name / "parameters"
            parameters.mkdir(parents=True, exist_ok=True)
            (parameters / "numdummies").write_text("2\n")
            (parameters / "debug").write_text("N\n")
        return ""

    def _unload(self, name: str) -> str:
        lines = (self.root / "proc/modules").read_text().splitlines(keepends=True)
        (line,) = [one for one in lines if one.split()[0] == name] or [""]
        if line and line.split()[2] != "0":
            return f"FATAL: Module {name} is in use."
        (self.root / "proc/modules").write_text("".join(one for one in lines if one != line))
        return ""


class Place:
    """The kernel, and functions that declare and apply modules."""

    def __init__(self, root: Path, make: Callable[..., Resource[Any, Any]]) -> None:
        self.kernel = Kernel(root)
        self.root = root
        self._make = make
        self.notes: list[str] = []

    def resource(
        self, name: str, *, noop: bool = False, of: type[KernelModule] = KernelModule, **properties: Any
    ) -> Resource[Any, Any]:
        result = self._make(of, {"name": name, **properties}, noop=noop)
        changes = [0]
        system = NoopSystem() if noop else self.kernel
        result.context = msgspec.structs.replace(result.context, system=system, changes=lambda: changes[0])
        return result

    def apply(self, name: str, **properties: Any) -> list[str]:
        resource = self.resource(name, **properties)
        actual = resource.look()
        differences = resource.differences(actual)
        if differences:
            resource.change(differences, actual)
            assert not resource.differences(resource.look())
        self.notes = list(resource.notes)
        return [str(difference) for difference in differences]

    def predict(self, name: str, **properties: Any) -> str:
        resource = self.resource(name, noop=True, **properties)
        actual = resource.look()
        differences = resource.differences(actual)
        return resource.noop_message(differences, actual) if differences else ""

    def text(self, path: str) -> str:
        """Return the text of a file without Puller's comment, or an empty text if the file is missing."""
        file = self.root / path
        return file.read_text().removeprefix("# Written by Puller.\n") if file.exists() else ""

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def state(self, module: str = "dummy") -> tuple[str, str, bool]:
        files = (self.text(f"etc/{where}/{module}.conf") for where in ("modules-load.d", "modprobe.d"))
        at_boot, configured = files
        return at_boot, configured, module in self.kernel.loaded


@pytest.fixture
def place(tmp_path: Path, make: Callable[..., Resource[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> Place:
    root = tmp_path / "root"
    place = Place(root, make)
    release = f"lib/modules/{os.uname().release}"
    names = {name: name.replace("_", "-") for name in AVAILABLE}
    place.write(
        f"{release}/modules.dep", "".join(f"kernel/x/{name}.ko.xz: kernel/y.ko\n" for name in names.values())
    )
    place.write(f"{release}/modules.builtin", "kernel/fs/ext4/ext4.ko\n")
    place.write("proc/modules", "ahci 49152 3 - Live 0x0000000000000000\n")
    place.write("bin/modprobe", "#!/bin/false\n")
    (root / "bin/modprobe").chmod(0o755)
    monkeypatch.setattr(module_files, "ROOT", str(root))
    monkeypatch.setattr("puller.resources.kernel.kernel_module.SEARCH_PATH", str(root / "bin"))
    return place


BLACKLISTED = "blacklist dummy\ninstall dummy /bin/false\n"
WANTED: dict[str, tuple[dict[str, Any], tuple[str, str, bool | None]]] = {
    "present": ({}, ("dummy\n", "", None)),
    "with options": ({"options": {"numdummies": 2}}, ("dummy\n", "options dummy numdummies=2\n", None)),
    "loaded": ({"ensure": "loaded"}, ("dummy\n", "", True)),
    "loaded with options": (
        {"ensure": "loaded", "options": ["numdummies=2", "debug"]},
        ("dummy\n", "options dummy numdummies=2 debug\n", True),
    ),
    "absent": ({"ensure": "absent"}, ("", "", False)),
    "blacklisted": ({"ensure": "blacklisted"}, ("", BLACKLISTED, False)),
}
FOUND = ["nothing", "only loaded", *WANTED]


@pytest.mark.representatives(15)
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("found", FOUND)
def test_every_state_converges_as_noop_predicts(place: Place, found: str, wanted: str) -> None:
    if found == "only loaded":
        place.kernel.use("dummy")
    elif found != "nothing":
        place.apply("dummy", **WANTED[found][0])
    before = place.state()
    properties, (at_boot, configured, is_loaded) = WANTED[wanted]
    place.kernel.ran.clear()
    predicted = place.predict("dummy", **properties)
    assert place.kernel.ran == []
    changed = place.apply("dummy", **properties)
    assert bool(changed) is bool(predicted)
    assert place.state() == (at_boot, configured, before[2] if is_loaded is None else is_loaded)
    done = {"loaded the module": "modprobe -- dummy", "unloaded the module": "modprobe -r -- dummy"}
    assert place.kernel.ran == [command for sentence, command in done.items() if f" {sentence}" in predicted]
    for name, path, old, new in (
        ("boot", "etc/modules-load.d/dummy.conf", before[0], at_boot),
        ("options", "etc/modprobe.d/dummy.conf", before[1], configured),
    ):
        output = f"removed {place.root}/{path}" if not new else f"written {place.root}/{path}"
        assert (output in predicted) is (old != new), name
    place.kernel.ran.clear()
    assert place.apply("dummy", **properties) == []
    assert place.predict("dummy", **properties) == ""
    assert place.kernel.ran == [], "the second run starts no process"


def test_a_name_is_the_same_with_either_sign(place: Place) -> None:
    place.apply("foo-bar", ensure="loaded")
    assert place.state("foo_bar") == ("foo_bar\n", "", True)
    assert place.apply("foo_bar", ensure="loaded") == []


def test_built_in_module_is_loaded_and_cannot_be_blocked(place: Place) -> None:
    place.apply("ext4", ensure="loaded")
    assert place.kernel.ran == []
    for ensure in ("absent", "blacklisted"):
        for act in (place.predict, place.apply):
            with pytest.raises(ResourceError, match="ext4 is built into the kernel, so nothing keeps it out"):
                act("ext4", ensure=ensure)


@pytest.mark.parametrize("ensure", ["present", "loaded"])
def test_a_module_that_the_kernel_has_not_is_refused_in_noop_too(place: Place, ensure: str) -> None:
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="no module nothing for the running kernel"):
            act("nothing", ensure=ensure)
    assert place.state("nothing") == ("", "", False)


def test_missing_module_can_be_blocked(place: Place) -> None:
    assert place.apply("freevxfs", ensure="blacklisted")
    assert place.apply("hfs", ensure="absent") == []


def test_noop_believes_in_a_module_that_comes_before(place: Place) -> None:
    resource = place.resource("zfs", noop=True, ensure="loaded")
    resource.context = msgspec.structs.replace(resource.context, uncertain=lambda path, apart_from="": True)
    actual = resource.look()
    assert resource.noop_message(resource.differences(actual), actual).endswith(
        "would have loaded the module"
    )


@pytest.mark.parametrize(
    ("references", "users", "said"),
    [
        (1, "user_of_dummy,", "dummy is in use by user_of_dummy, so it cannot be unloaded"),
        (2, "-", r"dummy is in use \(2 times\), so it cannot be unloaded"),
        (0, "[permanent],", r"dummy is in use by \[permanent\], so it cannot be unloaded"),
    ],
)
@pytest.mark.parametrize("ensure", ["absent", "blacklisted"])
def test_files_of_a_module_in_use_are_written_and_users_named(
    place: Place, ensure: str, references: int, users: str, said: str
) -> None:
    place.apply("dummy")
    place.kernel.use("dummy", references=references, users=users)
    for act in (place.predict, place.apply, place.apply):
        with pytest.raises(ResourceError, match=said):
            act("dummy", ensure=ensure)
    assert place.state() == ("", BLACKLISTED if ensure == "blacklisted" else "", True)
    assert place.kernel.ran == []


def test_in_a_container_only_the_files_are_managed(place: Place) -> None:
    (place.root / "proc/modules").unlink()
    for path in (place.root / "lib/modules").rglob("modules.*"):
        path.unlink()
    for ensure in ("present", "absent", "blacklisted"):
        place.apply("dummy", ensure=ensure)
        assert place.apply("dummy", ensure=ensure) == []
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="no /proc/modules, as in a container"):
            act("dummy", ensure="loaded")


def test_without_modules_of_the_kernel_nothing_is_loaded(place: Place) -> None:
    for path in (place.root / "lib/modules").rglob("modules.*"):
        path.unlink()
    with pytest.raises(ResourceError, match=r"no modules of the running kernel, .*, are installed"):
        place.apply("dummy", ensure="loaded")
    assert place.apply("dummy")


def test_changed_options_of_a_loaded_module_are_reported(place: Place) -> None:
    place.apply("dummy", ensure="loaded", options={"numdummies": 2, "debug": 0})
    assert place.notes == []
    place.apply("dummy", ensure="loaded", options={"numdummies": 4, "debug": 1, "unknown": 7})
    assert place.notes == [
        "numdummies is 2 now; 4 takes effect when the module is loaded again",
        "debug is N now; 1 takes effect when the module is loaded again",
    ]
    assert place.kernel.ran == ["modprobe -- dummy"]


OTHERS = "etc/modprobe.d/hardening.conf"


@pytest.mark.parametrize("never", ["/bin/false", "/bin/true", "/usr/bin/false"])
def test_block_by_a_foreign_file_is_respected(place: Place, never: str) -> None:
    place.write(OTHERS, f"# theirs\nblacklist \\\n  foo-bar\ninstall foo_bar {never}\n")
    assert place.apply("foo-bar", ensure="blacklisted") == []
    assert place.state("foo_bar") == ("", "", False)
    for ensure in ("present", "loaded"):
        for act in (place.predict, place.apply):
            with pytest.raises(
                ResourceError, match=f"{OTHERS} keeps foo_bar out \\(blacklist\\); take it out there"
            ):
                act("foo_bar", ensure=ensure)


@pytest.mark.parametrize(
    "text", ["blacklist dummy\n", "install dummy /bin/true\n", "install dummy /sbin/other\n"]
)
def test_partly_blocked_module_gets_its_own_file(place: Place, text: str) -> None:
    place.write(OTHERS, text)
    assert place.apply("dummy", ensure="blacklisted")
    assert place.state() == ("", BLACKLISTED, False)


def test_earlier_directory_hides_a_file_of_equal_name(place: Place) -> None:
    place.write("usr/lib/modprobe.d/x.conf", "blacklist dummy\n")
    with pytest.raises(ResourceError, match="keeps dummy out"):
        place.apply("dummy")
    (place.root / "etc/modprobe.d").mkdir(parents=True)
    (place.root / "etc/modprobe.d/x.conf").symlink_to("/dev/null")
    assert place.apply("dummy")


def test_revealed_file_counts_at_once(place: Place) -> None:
    place.apply("dummy", options={"numdummies": 2})
    place.write("usr/lib/modprobe.d/dummy.conf", "blacklist dummy\n")
    assert place.apply("dummy", options={"numdummies": 2}) == []
    with pytest.raises(ResourceError, match=r"usr/lib/modprobe\.d/dummy\.conf keeps dummy out"):
        place.apply("dummy")


@pytest.mark.parametrize("path", ["etc/modules-load.d/theirs.conf", "usr/lib/modules-load.d/package.conf"])
def test_module_loaded_at_boot_by_another_file_is_not_absent(place: Place, path: str) -> None:
    place.write(path, "; a comment\n# another\ndummy\n")
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match=f"{path} loads dummy at boot; take it out there"):
            act("dummy", ensure="absent")
    place.apply("dummy", ensure="blacklisted")
    assert place.notes == [f"{place.root}/{path} names it to be loaded at boot, which it is kept from"]


@pytest.mark.parametrize("ensure", ["present", "absent", "blacklisted"])
@pytest.mark.parametrize("path", ["etc/modules-load.d/kvm.conf", "etc/modprobe.d/kvm.conf"])
def test_a_file_that_says_anything_of_others_is_not_touched(place: Place, path: str, ensure: str) -> None:
    text = "kvm\nkvm_intel\n" if "load" in path else "options kvm ignore_msrs=1\noptions kvm_intel nested=1\n"
    place.write(path, text)
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match=f"{path} says something of kvm_intel, so it is not replaced"):
            act("kvm", ensure=ensure)
    assert (place.root / path).read_text() == text


def test_a_link_in_the_place_of_a_file_is_refused(place: Place) -> None:
    place.write("precious", "x")
    (place.root / "etc/modprobe.d").mkdir(parents=True)
    (place.root / "etc/modprobe.d/dummy.conf").symlink_to("../../precious")
    with pytest.raises(ResourceError, match=r"dummy\.conf is not a regular file; remove it first"):
        place.apply("dummy", ensure="blacklisted")
    assert (place.root / "precious").read_text() == "x"


@pytest.mark.root
def test_a_file_that_others_may_write_is_not_in_order(place: Place) -> None:
    place.apply("dummy", ensure="blacklisted")
    (place.root / "etc/modprobe.d/dummy.conf").chmod(0o666)
    os.chown(place.root / "etc/modprobe.d/dummy.conf", 1234, 0)
    assert len(place.apply("dummy", ensure="blacklisted")) == 2
    status = (place.root / "etc/modprobe.d/dummy.conf").stat()
    assert (status.st_uid, status.st_mode & 0o777) == (0, 0o644)


def test_missing_modprobe_is_reported(place: Place) -> None:
    (place.root / "bin/modprobe").unlink()
    assert place.apply("dummy"), "files need no tool"
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="modprobe is not installed; it is in the package kmod"):
            act("dummy", ensure="loaded")


def test_modprobe_output_is_the_failure(place: Place) -> None:
    place.write(f"lib/modules/{os.uname().release}/modules.dep", "kernel/broken.ko:\n")
    with pytest.raises(ResourceError, match="modprobe -- broken: exit code 1; it printed:\nmodprobe: FATAL"):
        place.apply("broken", ensure="loaded")
    assert place.state("broken")[0] == "broken\n"


class Died(BaseException):
    """Raised where the run is killed."""


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("found", ["blacklisted", "loaded with options"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_wherever_it_is_killed_the_next_run_converges(
    place: Place, monkeypatch: pytest.MonkeyPatch, found: str, wanted: str, step: int
) -> None:
    place.apply("dummy", **WANTED[found][0])
    leftovers = [step]

    def counted(method: Any) -> Any:
        def change(self: object, *arguments: Any, **named: Any) -> Any:
            leftovers[0] -= 1
            if leftovers[0] <= 0:
                raise Died
            return method(self, *arguments, **named)

        return change

    properties, (at_boot, configured, is_loaded) = WANTED[wanted]
    with monkeypatch.context() as patch:
        for of, name in ((LocalSystem, "replace_file"), (LocalSystem, "remove"), (Kernel, "execute")):
            patch.setattr(of, name, counted(getattr(of, name)))
        try:
            place.apply("dummy", **properties)
        except Died:
            pass
    place.apply("dummy", **properties)
    state = place.state()
    assert state == (at_boot, configured, state[2] if is_loaded is None else is_loaded)
    assert place.apply("dummy", **properties) == []


def test_leftover_module_loses_its_files_and_stays_loaded(place: Place) -> None:
    place.apply("dummy", ensure="loaded", options=["numdummies=2"])
    place.write("etc/modules-load.d/theirs.conf", "dummy\n")
    assert place.apply("dummy", of=LeftoverKernelModule, ensure="absent")
    assert place.state() == ("", "", True)
    assert place.apply("dummy", of=LeftoverKernelModule, ensure="absent") == []


def test_a_thousand_modules_read_each_file_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        place.write(f"etc/modprobe.d/{number}.conf", f"blacklist m{number}\ninstall m{number} /bin/false\n")
    opened: list[str] = []
    real = module_files._text

    def counted(path: str) -> str | None:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(module_files, "_text", counted)
    shared: dict[type, Any] = {}
    for number in range(50):
        resource = place.resource(f"m{number}", ensure="blacklisted")
        resource.context = msgspec.structs.replace(resource.context, shared=shared)
        assert resource.differences(resource.look()) == []
    assert len(opened) == len(set(opened)) == 52
    assert set(shared) == {Modules}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "-r"}, "name is '-r', expected at most 55 letters"),
    ({"name": "a/b"}, "name is 'a/b', expected"),
    ({"name": "../x"}, "expected at most 55 letters"),
    ({"name": "a b"}, "expected at most 55 letters"),
    ({"name": "a\nb"}, "expected at most 55 letters"),
    ({"name": "x" * 56}, "expected at most 55 letters"),
    (
        {"name": "x", "ensure": "running"},
        "ensure is 'running', expected one of present, loaded, absent, blacklisted",
    ),
    ({"name": "x", "options": ["a=b\ninstall x /bin/sh"]}, "expected key=value"),
    ({"name": "x", "options": {"a\nb": "c"}}, "expected key=value"),
    ({"name": "x", "options": {"a": 'b"c'}}, "expected key=value"),
    ({"name": "x", "options": {"a": "b\\"}}, "expected key=value"),
    ({"name": "x", "options": ["a=b c"]}, "expected key=value"),
    ({"name": "x", "options": ["a="]}, "expected key=value"),
    ({"name": "x", "options": ["=b"]}, "expected key=value"),
]


@pytest.mark.attack("data-names.kernel")
@pytest.mark.parametrize(("properties", "sentence"), WRONG)
def test_impossible_properties_are_refused_at_load(
    make: Callable[..., Resource[Any, Any]], properties: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PropertyError, match=re.escape(sentence)):
        make(KernelModule, properties)


def test_values_with_blanks_are_quoted(place: Place) -> None:
    place.apply("dummy", options={"a": "b c", "d": 1})
    assert place.state()[1] == 'options dummy a="b c" d=1\n'
    assert place.apply("dummy", options=['a="b c"', "d=1"]) == []


def load(directory: Path, text: str) -> list[str]:
    (directory / "manifest.yaml").write_text(text)
    manifest = load_manifest(directory / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
    return [str(declaration) for declaration in manifest.declarations]


def test_module_under_two_names_is_an_error_at_load(tmp_path: Path) -> None:
    def declared(*modules: dict[str, Any]) -> str:
        return yaml.safe_dump({"resources": [{"kernel_module": [*modules]}]})

    assert load(tmp_path, declared({"a_b": {}}, {"a_b": {"options": ["x=1"]}})) == ["kernel_module#a_b"]
    with pytest.raises(ManifestError, match=r"first at manifest\.yaml:\d+ as kernel_module#a-b, and"):
        load(tmp_path, declared({"a-b": {}}, {"a_b": {"ensure": "blacklisted"}}))
    with pytest.raises(ManifestError, match="ensure is 'blacklisted' here and 'present' there"):
        load(tmp_path, declared({"a": {}}, {"a": {"ensure": "blacklisted"}}))


def test_the_example_of_the_page_converges_and_is_stable(place: Place) -> None:
    page = (Path(__file__).parents[4] / "docs/resources/kernel_module.md").read_text()
    example = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])
    (modules,) = [module["kernel_module"] for module in example["resources"]]
    release = f"lib/modules/{os.uname().release}"
    place.write(f"{release}/modules.dep", "kernel/net/br_netfilter.ko:\nkernel/net/dummy.ko:\n")
    place.kernel.use("floppy")
    declared = [(name, properties) for module in modules for name, properties in module.items()]
    for name, properties in declared:
        assert place.apply(name, **properties)
    assert place.kernel.loaded == {"ahci", "br_netfilter"}
    for name, properties in declared:
        assert place.apply(name, **properties) == []
