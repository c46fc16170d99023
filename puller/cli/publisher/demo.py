"""``puller demo``: all steps from keys to a tampered bundle, with the real commands, in a temporary directory.

Each step prints a command and runs it as a separate process, against a web server on loopback. The demo writes only to
the temporary directory and needs no privileges.
"""

import contextlib
import grp
import os
import pwd
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from bundles.publisher.web_server import serving
from puller.exit_status import ExitStatus

_MANIFEST = """\
# What this machine should look like.
data:
  directory: {directory}
  workers: 2
  greeting: "Hello from version {version}"
resources:
  - file:
      - defaults: {{owner: {owner}, group: {group}, mode: "0644"}}
      - "{{{{ data.directory }}}}": {{ensure: directory}}
      - "{{{{ data.directory }}}}/motd":
          content: |
            {{{{ data.greeting }}}}, on {{{{ facts.os.name }}}}.
      - "{{{{ data.directory }}}}/app.conf":
          template: templates/app.conf.j2
          health_checks:
            - {{name: app, command: "sh -c 'grep workers.=.[0-9] {directory}/app.conf || exit 2'"}}
  - exec:
      - reload the application:
          command: sh -c 'echo reloaded >> {directory}/reloads'
          refreshonly: true
          subscribe: ["file#{{{{ data.directory }}}}/app.conf"]
"""

_FAILING = """\
      - migrate the database:
          command: sh -c 'echo no database here >&2; exit 1'
give_up_after: 2
"""

_TEMPLATE = """\
# workers: one for each processor, or what this host says
workers = {{ data.workers }}
kernel  = {{ facts.kernel }}
"""


@click.command()
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
def demo(keep: bool) -> int:
    """Try Puller in a temporary directory.

    The demo publishes, runs, overrides, breaks and attacks with the real commands. It needs no privileges, no
    network and no setup, and takes a few seconds.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        if keep:
            root = Path(tempfile.mkdtemp(prefix="puller-demo-"))
        else:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="puller-demo-")))
        _Demo(root).play()
        click.echo(f"\nAll as it should be, in {time.monotonic() - started:.1f} s.")
        if keep:
            click.echo(f"Look around in {root}")
    click.echo("Next: docs/quick-start.md shows how to publish for a real machine.")
    return ExitStatus.OK


class _Demo:
    """The steps, on one publisher and one host that share a temporary directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = root / "machine"
        self.bundle = root / "web"
        self.public = root / "site" / "public"
        self.steps = 0

    def play(self) -> None:
        self._say("An author writes a bundle: a manifest, and the templates that it uses.")
        self._write_bundle("1.0.0")
        self._command("lint", "web")
        self._say("A publisher makes a site with signing keys, and publishes the bundle in it.")
        self._command("site", "init", "site", "--no-passphrase")
        self._command("site", "publish", "site", "web", "--version", "1.0.0")
        with serving(self.public) as url:
            self._configure_host(url)
            self._pull_and_converge()
            self._publish_an_update()
            self._override_on_this_host()
            self._break_the_application()
            self._fail_again_and_again()
            self._tamper()
        self._say("The web server is gone. Missing files on the machine are restored all the same.")
        (self.machine / "motd").unlink()
        self._run(ExitStatus.FETCH_FAILED)
        self._show(self.machine / "motd")
        self._say("The host's view of these events:")
        self._command("status", "--config", "host/config.yaml")

    def _pull_and_converge(self) -> None:
        self._say("The host pulls it for the first time: everything is missing, so everything is made.")
        self._run()
        self._show(self.machine / "motd", self.machine / "app.conf")
        self._say("The second run changes nothing.")
        self._run()

    def _publish_an_update(self) -> None:
        self._say("Version 1.1.0 has another greeting. Only that file changes.")
        self._write_bundle("1.1.0")
        self._command("site", "publish", "site", "web", "--version", "1.1.0")
        self._run()

    def _override_on_this_host(self) -> None:
        self._say(
            "This host gets more workers than other hosts, from its own data, merged over the data of the bundle."
        )
        (self.root / "host" / "data.yaml").write_text("data:\n  workers: 8\n")
        self._show(self.root / "host" / "data.yaml")
        self._run("--diff")

    def _break_the_application(self) -> None:
        self._say("Version 1.2.0 breaks the application: a health check of the bundle fails.")
        self._write_bundle("1.2.0", template=_TEMPLATE.replace("{{ data.workers }}", "many"))
        self._command("site", "publish", "site", "web", "--version", "1.2.0")
        self._say("The host rolls back to the last good version by itself, and does not try this one again.")
        self._run(ExitStatus.HEALTH_FAILED)
        self._show(self.machine / "app.conf")

    def _fail_again_and_again(self) -> None:
        self._say("Version 1.3.0 has a command that fails here, and limits the number of failed runs.")
        self._write_bundle("1.3.0", additional=_FAILING)
        self._command("site", "publish", "site", "web", "--version", "1.3.0")
        self._say("After the first the host goes on with it: what failed may have been away for a moment.")
        self._run(ExitStatus.CHANGED_AND_FAILED)
        self._say("After the second it rolls back by itself.")
        self._run(ExitStatus.HEALTH_FAILED)
        self._show(self.machine / "motd")

    def _tamper(self) -> None:
        self._say("Version 1.4.0 is published, and an attacker changes one byte of it on the web server.")
        self._write_bundle("1.4.0")
        self._command("site", "publish", "site", "web", "--version", "1.4.0")
        (target,) = (self.public / "targets" / "web").glob("*.web-1.4.0.tar.gz")
        data = bytearray(target.read_bytes())
        data[len(data) // 2] ^= 1
        target.write_bytes(data)
        self._say("It is refused before anything looks into it, and the last good version is enforced.")
        self._run(ExitStatus.SIGNATURE)
        self._show(self.machine / "motd")

    # Doing

    def _write_bundle(self, version: str, template: str = _TEMPLATE, additional: str = "") -> None:
        (self.bundle / "templates").mkdir(parents=True, exist_ok=True)
        owner, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
        values = {"directory": self.machine, "version": version, "owner": owner, "group": group}
        (self.bundle / "manifest.yaml").write_text(_MANIFEST.format(**values) + additional)
        (self.bundle / "templates" / "app.conf.j2").write_text(template)

    def _configure_host(self, url: str) -> None:
        host = self.root / "host"
        host.mkdir()
        (host / "root.json").write_bytes((self.root / "site" / "root.json").read_bytes())
        (host / "config.yaml").write_text(
            f"site: {url}/\n"
            f"trust_anchor: {host}/root.json     # from site/root.json, when this host was provisioned\n"
            "bundles:\n"
            "  - name: web\n"
            f"host_data: {host}/data.yaml\n"
            f"host_data_directory: {host}/data.d\n"
            f"facts_directory: {host}/facts.d\n"
            f"state_directory: {host}/state\n"
            f"run_directory: {host}/run\n"
        )
        self._say("A host is provisioned with a configuration and the site's trust anchor.")
        self._show(host / "config.yaml")

    def _run(self, *options: ExitStatus | str) -> None:
        desired = next((option for option in options if isinstance(option, ExitStatus)), ExitStatus.OK)
        flags = [option for option in options if isinstance(option, str)]
        self._command("run", "--config", "host/config.yaml", *flags, expected=desired)

    def _command(self, *arguments: str, expected: ExitStatus = ExitStatus.OK) -> None:
        click.echo(click.style(f"$ puller {' '.join(arguments)}", bold=True))
        completed = subprocess.run(
            [sys.executable, "-m", "puller", *arguments],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        click.echo(_indented(completed.stdout), nl=False)
        if completed.returncode != expected:
            raise click.ClickException(f"exit status {completed.returncode}, expected {int(expected)}")
        if expected is not ExitStatus.OK:
            click.echo(f"    (exit status {completed.returncode})")

    def _say(self, sentence: str) -> None:
        self.steps += 1
        click.echo(f"\n{click.style(f'{self.steps}. {sentence}', fg='green')}")

    def _show(self, *paths: Path) -> None:
        for path in paths:
            click.echo(click.style(f"$ cat {path.relative_to(self.root)}", bold=True))
            click.echo(_indented(path.read_text()), nl=False)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
