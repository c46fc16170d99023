"""The locale resource: every state of the archive and both files, kills, and locales that cannot be generated."""

from __future__ import annotations

import re

import pytest

from puller.errors import ManifestError
from tests.puller.resources.host.conftest import HostMachine
from tests.simulators import locales
from tests.simulators.locales import BROKEN
from tests.support.sweeps import Sweep

GERMAN = "locale: [de_DE.UTF-8: {variables: [LANG, LC_TIME]}]"
PLAIN = "locale: [de_DE.UTF-8]"
ABSENT = "locale: [de_DE.UTF-8: {ensure: absent}]"
ENTRY = "de_DE.UTF-8 UTF-8\n"
OTHERS = "# by hand\nen_US.UTF-8 UTF-8\n"
SET = "LANG=de_DE.UTF-8\nLC_TIME=de_DE.UTF-8\n"


def prepare(machine: HostMachine, archive: str, entries: str | None, variables: str | None) -> None:
    machine.locales.archive.unlink(missing_ok=True)
    if archive:
        machine.locales._write(archive.split())
    (machine.etc / "default").mkdir(exist_ok=True)
    for name, text in (("locale.gen", entries), ("default/locale", variables)):
        (machine.etc / name).unlink(missing_ok=True)
        if text is not None:
            (machine.etc / name).write_text(text)


def entries(machine: HostMachine) -> str:
    return (machine.etc / "locale.gen").read_text()


def variables(machine: HostMachine) -> str:
    path = machine.etc / "default/locale"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("archive", ["", "en_US.utf8", "de_DE.utf8 en_US.utf8"])
@pytest.mark.parametrize(
    ("text", "result"),
    [
        (None, ENTRY),
        ("", ENTRY),
        (OTHERS, OTHERS + ENTRY),
        ("# de_DE.UTF-8 UTF-8\nen_US.UTF-8 UTF-8", "de_DE.UTF-8 UTF-8\nen_US.UTF-8 UTF-8"),
        ("# de_DE ISO-8859-1", "# de_DE ISO-8859-1\nde_DE.UTF-8 UTF-8\n"),
        ("  de_DE.utf8   UTF-8\n", "  de_DE.utf8   UTF-8\n"),
    ],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, SET),
        ("# by hand\n", "# by hand\n" + SET),
        ("LANG=en_US.UTF-8\nLANGUAGE=en\n", "LANG=de_DE.UTF-8\nLANGUAGE=en\nLC_TIME=de_DE.UTF-8\n"),
        (
            'LANG="de_DE.utf8"\nLC_TIME=C\nLC_PAPER=de_DE.UTF-8\n',
            'LANG="de_DE.utf8"\nLC_TIME=de_DE.UTF-8\n',
        ),
        (SET, SET),
    ],
)
@pytest.mark.representatives(12)
def test_every_state_becomes_the_declared_one(
    machine: HostMachine, archive: str, text: str | None, result: str, before: str | None, after: str
) -> None:
    prepare(machine, archive, text, before)
    done = machine.converge(GERMAN)
    assert "de_DE.utf8" in machine.locales.names
    assert (entries(machine), variables(machine)) == (result, after)
    is_in_sync = "de_DE" in archive and text == result and before == after
    assert (done.state == "stable") is is_in_sync


@pytest.mark.parametrize("archive", ["", "de_DE.utf8 en_US.utf8"])
@pytest.mark.parametrize("text", [None, OTHERS, OTHERS + "  de_DE.UTF-8 UTF-8"])
@pytest.mark.parametrize("before", [None, "LANG=en_US.UTF-8\n", "LANG=en_US.UTF-8\n" + SET[17:], SET])
def test_absent_leaves_neither_locale_nor_use(
    machine: HostMachine, archive: str, text: str | None, before: str | None
) -> None:
    prepare(machine, archive, text, before)
    machine.converge(ABSENT)
    assert machine.locales.names == archive.split()[1:]
    if text is not None:
        assert entries(machine) == text.replace("  de_DE", "# de_DE")
    assert variables(machine) == re.sub("(?m)^.*de_DE.*\n", "", before or "")


def test_differences_name_locale_entry_and_variables(machine: HostMachine) -> None:
    prepare(machine, "de_DE.utf8", "", "LANG=C.UTF-8\nLC_PAPER=de_DE.UTF-8\n")
    done = machine.converge(GERMAN)
    etc = machine.etc
    assert [str(difference) for difference in done.differences] == [
        f"{etc}/locale.gen entry: de_DE.UTF-8",
        f"{etc}/default/locale LANG C.UTF-8 → de_DE.UTF-8",
        f"{etc}/default/locale LC_TIME: de_DE.UTF-8",
        f"{etc}/default/locale LC_PAPER de_DE.UTF-8 → (none)",
    ]
    assert "+de_DE.UTF-8 UTF-8" in done.diff
    assert "-LANG=C.UTF-8\n-LC_PAPER=de_DE.UTF-8\n+LANG=de_DE.UTF-8" in done.diff


def test_all_locales_are_changed_at_once(machine: HostMachine) -> None:
    prepare(machine, "fr_FR.utf8", "fr_FR.UTF-8 UTF-8\n", "LANG=fr_FR.UTF-8\n")
    declarations = (
        "locale: [fr_FR.UTF-8: {ensure: absent}]",
        "locale: [en_US.UTF-8: {variables: [LANG]}, de_DE.UTF-8: {variables: [LC_TIME]}, de_DE@euro]",
    )
    machine.apply(*declarations)
    assert machine.changes == ["locale.gen", *["localedef"] * 3, "locale", "localedef"]
    assert machine.locales.ran == [
        "generate en_US.UTF-8",
        "generate de_DE.UTF-8",
        "generate de_DE@euro",
        "delete fr_FR.utf8",
    ]
    assert variables(machine) == "LANG=en_US.UTF-8\nLC_TIME=de_DE.UTF-8\n"
    assert {event.state for event in machine.apply(*declarations).values()} == {"stable"}
    assert machine.changes == []


def test_name_without_charset_has_that_of_the_list(machine: HostMachine) -> None:
    prepare(machine, "", "", None)
    machine.converge("locale: [de_DE]")
    assert (entries(machine), machine.locales.names) == ("de_DE ISO-8859-1\n", ["de_DE", "de_DE.iso88591"])
    machine.converge("locale: [de_DE: {ensure: absent}]")
    assert (entries(machine), machine.locales.names) == ("# de_DE ISO-8859-1\n", [])


def test_versions_one_two_and_back(machine: HostMachine) -> None:
    prepare(machine, "", OTHERS, "LANG=C.UTF-8\n")
    english = "locale: [en_US.UTF-8: {variables: [LANG]}]"
    for declaration, lang in ((PLAIN, "C"), (GERMAN, "de_DE"), (english, "en_US"), (GERMAN, "de_DE")):
        machine.converge(declaration)
        assert f"LANG={lang}.UTF-8\n" in variables(machine)


def test_run_that_is_killed_is_finished_by_the_next(machine: HostMachine, sweep: Sweep) -> None:
    declarations = ("locale: [en_US.UTF-8: {ensure: absent}]", GERMAN)

    def attempt(step: int) -> bool:
        prepare(machine, "en_US.utf8", OTHERS, "LANG=en_US.UTF-8\n")
        try:
            machine.apply(*declarations, dies_after=step)
        except KeyboardInterrupt:
            lang = variables(machine).partition("\n")[0].removeprefix("LANG=")
            assert lang.lower().replace("-", "") in [name.lower() for name in machine.locales.names]
            machine.apply(*declarations)
            assert variables(machine) == SET
            assert machine.locales.names == ["de_DE.utf8"]
            assert entries(machine) == "# by hand\n# en_US.UTF-8 UTF-8\n" + ENTRY
            return True
        return False

    assert sweep(attempt) >= 3


@pytest.mark.parametrize("is_listed", [True, False])
def test_built_in_locale_needs_no_generation(
    machine: HostMachine, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    if not is_listed:
        monkeypatch.setattr(locales, "BUILT_IN", ("C", "POSIX"))
    prepare(machine, "", OTHERS, None)
    machine.converge("locale: [C.UTF-8: {variables: [LANG]}]")
    assert (variables(machine), entries(machine)) == ("LANG=C.UTF-8\n", OTHERS)
    assert machine.locales.ran == []


def test_red_hat_has_variables_in_another_file(machine: HostMachine) -> None:
    (machine.etc / "debian_version").unlink()
    machine.locales.packaged = ["de_DE.utf8"]
    machine.converge(GERMAN)
    assert (machine.etc / "locale.conf").read_text() == SET
    assert not (machine.etc / "locale.gen").exists()


def test_variables_are_written_behind_a_link(machine: HostMachine) -> None:
    prepare(machine, "de_DE.utf8", ENTRY, None)
    (machine.etc / "default/locale").symlink_to("../locale.conf")
    machine.converge(GERMAN)
    assert (machine.etc / "locale.conf").read_text() == SET
    assert (machine.etc / "default/locale").is_symlink()


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("is_red_hat", [True, False])
def test_locale_without_sources_names_the_package(machine: HostMachine, noop: bool, is_red_hat: bool) -> None:
    (machine.i18n / "SUPPORTED").unlink()
    if is_red_hat:
        (machine.etc / "debian_version").unlink()
    (event,) = machine.apply(GERMAN, noop=noop).values()
    assert event.errors == [
        "locale de_DE.UTF-8 is not installed, and this machine cannot generate it;"
        " install the package locales, on Red Hat glibc-langpack-de"
    ]
    assert machine.changes == []


@pytest.mark.parametrize("noop", [True, False])
def test_unknown_locale_leaves_the_others_alone(machine: HostMachine, noop: bool) -> None:
    prepare(machine, "", "", "LANG=C.UTF-8\n")
    events = machine.apply("locale: [tlh_QO.UTF-8: {variables: [LANG]}, de_DE.UTF-8]", noop=noop)
    (error,) = events["locale#tlh_QO.UTF-8"].errors
    assert error.startswith("unknown locale tlh_QO.UTF-8: ")
    assert not events["locale#de_DE.UTF-8"].errors
    assert variables(machine) == "LANG=C.UTF-8\n"
    assert machine.locales.names == ([] if noop else ["de_DE.utf8"])


def test_locale_that_is_not_generated_is_not_used(machine: HostMachine) -> None:
    prepare(machine, "", "", "LANG=C.UTF-8\n")
    events = machine.apply(
        f"locale: [{BROKEN}: {{variables: [LANG]}}, de_DE.UTF-8: {{variables: [LC_TIME]}}]"
    )
    assert "exit code 4: [error] cannot open locale definition file" in str(events[f"locale#{BROKEN}"].errors)
    assert events["locale#de_DE.UTF-8"].state == "changed"
    assert variables(machine) == "LANG=C.UTF-8\nLC_TIME=de_DE.UTF-8\n"


@pytest.mark.parametrize("noop", [True, False])
def test_locale_of_a_package_is_not_removed(machine: HostMachine, noop: bool) -> None:
    prepare(machine, "", OTHERS, SET)
    machine.locales.packaged = ["de_DE.utf8"]
    (event,) = machine.apply(ABSENT, noop=noop).values()
    assert event.errors == [
        "locale de_DE.UTF-8 belongs to a package; remove the package, on Red Hat glibc-langpack-de"
    ]
    assert variables(machine) == SET


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("obstacle", ["locale.gen", "default/locale"])
def test_file_that_cannot_be_edited_is_a_failure(machine: HostMachine, obstacle: str, noop: bool) -> None:
    (machine.etc / obstacle).mkdir(parents=True)
    (event,) = machine.apply(GERMAN, noop=noop).values()
    assert event.errors == [f"{machine.etc / obstacle} is a directory, expected a file"]
    assert machine.locales.names == []


@pytest.mark.parametrize("noop", [True, False])
def test_script_instead_of_variables_is_a_failure(machine: HostMachine, noop: bool) -> None:
    prepare(machine, "de_DE.utf8", ENTRY, "if true; then\nLANG=C\nfi\n")
    (event,) = machine.apply(GERMAN, noop=noop).values()
    assert event.errors
    assert variables(machine) == "if true; then\nLANG=C\nfi\n"


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("''", "name"),
        ("/etc/passwd", "expected a locale such as"),
        ("'../de_DE'", "expected a locale such as"),
        ('"de_DE\\nC UTF-8"', "expected a locale such as"),
        ("'de_DE.UTF-8 UTF-8'", "expected a locale such as"),
        ("--help", "expected a locale such as"),
        ("'$(id)'", "expected a locale such as"),
        ("de_DE: {ensure: latest}", "ensure is 'latest', expected present or absent"),
        ("C.UTF-8: {ensure: absent}", "each machine has this locale"),
        ("de_DE: {variables: [LC_ALL]}", "variables has 'LC_ALL', expected LANG or one of"),
        ("de_DE: {variables: [PATH]}", "variables has 'PATH'"),
        ("de_DE: {variables: [LANG, LANG]}", "variables has one name twice"),
    ],
)
def test_invalid_values_are_errors_of_the_manifest(
    machine: HostMachine, declaration: str, message: str
) -> None:
    with pytest.raises(ManifestError) as error:
        machine.apply(f"locale: [{declaration}]")
    assert message in str(error.value)


def test_two_locales_of_a_variable_are_a_contradiction(machine: HostMachine) -> None:
    with pytest.raises(ManifestError, match="sets LANG to another locale"):
        machine.apply(GERMAN, "locale: [en_US.UTF-8: {variables: [LANG]}]")
    with pytest.raises(ManifestError, match="declared twice"):
        machine.apply(GERMAN, "locale: [de_DE.utf8: {variables: [LANG]}]")
    assert len(machine.apply(GERMAN, "locale: [de_DE.utf8: {variables: [LC_TIME, LANG]}]", PLAIN)) == 1


def test_dry_run_accepts_a_locale_that_a_command_may_install(machine: HostMachine) -> None:
    (machine.i18n / "SUPPORTED").unlink()
    events = machine.apply("exec: ['true']", GERMAN, noop=True)
    assert events["locale#de_DE.UTF-8"].noop_message == (
        "Would have generated the locale de_DE.UTF-8,"
        f" would have changed LANG, LC_TIME in {machine.etc}/default/locale"
    )
