"""Whether units start at boot, and why enabling one would not let it start (``puller.system.boot``)."""

from puller.resources.services.install_section import Install, InstallSections
from puller.resources.services.unit import Unit
from puller.system.boot import Boot, is_started_by_bus

_TRIGGERS = (".socket", ".timer", ".path", ".automount")


class AtBoot:
    """The units of one manager at boot. Methods raise ``ResourceError``.

    ``is_behind``: in a dry run, systemd has not read its files as they are, so the files decide.
    """

    def __init__(self, sections: InstallSections, boot: Boot, *, is_behind: bool) -> None:
        self._sections = sections
        self._boot = boot
        self._is_behind = is_behind

    def started_by(self, unit: Unit) -> str:
        """Return the unit that starts ``unit`` at boot. Empty if no unit does."""
        if self._is_behind and unit.has_links:
            return next(filter(self._boot.reaches, self._install_of(unit).starters), "")
        return self._boot.starts(unit.node)

    def is_started(self, unit: Unit) -> bool:
        """Return whether a unit starts at boot, also at the boot after the next one, or when D-Bus asks for it."""
        if unit.file_state in ("enabled-runtime", "transient"):
            return False
        if self.started_by(unit):
            return True
        return (
            unit.load == "loaded"
            and unit.file_state in ("static", "enabled")
            and self._is_started_by_bus(unit)
        )

    def why_not(self, unit: Unit) -> str:
        """Return why a unit would not start at boot if it were enabled. Empty if it would."""
        if self.is_started(unit) or unit.is_init_script:
            return ""
        if unit.file_state == "transient":
            return "it was made by a program and is gone with the next boot"
        if unit.file_state == "generated":
            return f"it was made from {unit.source or 'a file'} that names no unit which starts at boot"
        install = self._install_of(unit)
        names = [*install.starters, *install.aliases]
        if not names:
            return "it has no [Install] section, and no unit that starts at boot wants it"
        if any(map(self._boot.reaches, names)) or self._is_started_by_bus(unit):
            return ""
        default = self._boot.default or "the default target"
        return (
            f"its [Install] section names {', '.join(names)}, and a boot into {default} does not reach that"
        )

    def _install_of(self, unit: Unit) -> Install:
        """Return the ``[Install]`` section, with those of the triggers that are enabled along with it."""
        sections, pending = {unit.id: self._sections.of(unit.id, unit.fragment)}, [unit.id]
        while pending:
            for name in sections[pending.pop()].also:
                if name not in sections:
                    sections[name] = self._sections.of(name)
                    pending.append(name)
        triggers = (unit.id, *(name for name in sections if name.endswith(_TRIGGERS)))
        wants = [pair for name in triggers for pair in sections[name].wants]
        return Install(tuple(wants), sections[unit.id].aliases)

    def _is_started_by_bus(self, unit: Unit) -> bool:
        return is_started_by_bus(unit.id, unit.fragment, self._sections.of(unit.id, unit.fragment).aliases)
