"""The commands and options of other tools, and the answer to each: ``puller pull`` leads to ``puller run``.

* The tables have the words of Ansible, Puppet, Salt, git, kubectl, Terraform, Flux and chezmoi.
* An answer is either a command line between backquotes, or a sentence that ends with a full stop.
* A word without an entry gets the commands of the same name in other groups, then the three nearest names. A word
  without a similar name gets the command that lists all names.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import click

from foundation.suggestions import SIMILAR, VERY_SIMILAR
from puller.resources.registry import type_names

_SUGGESTED = 3
_GROUPS = ("bundle", "site", "fleet", "config", "quarantine", "hiera", "session", "schema")
_ONE_RUN = "`puller run` does one run and ends. To apply a part of the resources, use `--only REFERENCE`."
_NEVER_ASKS = "Puller asks no questions, so leave this option out."
_ONE_HOST = (
    "Each host runs Puller itself. To reach a part of the hosts, use `puller site publish --percent NUMBER`."
)
_HOST_DATA = "To set values for a host, use the file `host_data` of its configuration."
_NO_STATE = "The name and the state are arguments: `puller ensure TYPE NAME STATE`."

_COMMANDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "puller": {
        "auth": ("puller site keys",),
        "autoremove": ("puller forget",),
        "branch": ("puller site promote",),
        "cat": ("puller state",),
        "cert": ("puller site keys",),
        "console": ("puller hiera lookup",),
        "daemon-reload": ("puller install-units",),
        "dependency": ("puller render",),
        "edit": ("puller explain",),
        "env": ("puller facts",),
        "is-active": ("puller status",),
        "list-timers": ("puller status",),
        "lock": ("puller pin",),
        "unlock": ("puller unpin",),
        "mask": ("puller disable",),
        "unmask": ("puller enable",),
        "merge": ("puller site promote",),
        "node": ("puller fleet status",),
        "output": (
            "puller site list",
            "puller fleet exports",
        ),
        "providers": ("puller state",),
        "purge": (
            "puller ensure TYPE NAME absent",
            "puller forget",
        ),
        "reload": ("puller run",),
        "remote": ("puller site push",),
        "remove": (
            "puller ensure TYPE NAME absent",
            "puller site withdraw",
        ),
        "repo": (
            "puller site",
            "puller ensure repository",
        ),
        "restart": ("puller run",),
        "rm": (
            "puller ensure TYPE NAME absent",
            "puller site withdraw",
        ),
        "scale": ("puller site rollout",),
        "search": ("puller site list",),
        "tag": ("puller site publish",),
        "taint": ("puller run --only REFERENCE",),
        "top": ("puller fleet status",),
        "uninstall": (
            "puller ensure TYPE NAME absent",
            "puller site withdraw",
        ),
        "workspace": ("puller site list",),
        "add": ("puller bundle new", "puller site publish"),
        "agent": ("puller run",),
        "blame": ("puller explain",),
        "build": ("puller bundle build",),
        "catalog": ("puller render",),
        "checkout": ("puller pin",),
        "clone": ("puller site mirror",),
        "commit": ("puller bundle build", "puller site publish"),
        "compile": ("puller render",),
        "cordon": ("puller disable",),
        "create": ("puller bundle new",),
        "delete": ("puller ensure TYPE NAME absent", "puller site withdraw"),
        "deploy": ("puller site publish",),
        "describe": ("puller explain",),
        "destroy": ("puller site withdraw",),
        "diagnose": ("puller doctor",),
        "doc": ("puller help",),
        "drain": ("puller disable",),
        "drift": ("puller diff",),
        "dry-run": ("puller run --noop",),
        "facter": ("puller facts",),
        "fetch": ("puller run",),
        "fmt": ("puller lint",),
        "freeze": ("puller disable",),
        "galaxy": ("puller bundle new",),
        "get": ("puller state", "puller status"),
        "health": ("puller doctor", "puller check"),
        "grains": ("puller facts",),
        "highstate": ("puller run",),
        "hold": ("puller disable", "puller pin"),
        "hosts": ("puller fleet status",),
        "init": ("puller bundle new", "puller site init"),
        "install": ("puller install-units", "puller ensure package NAME"),
        "inventory": ("puller fleet status",),
        "list": ("puller status", "puller site list"),
        "log": ("puller history",),
        "logs": ("puller history",),
        "ls": ("puller status", "puller site list"),
        "man": ("puller help",),
        "module": ("puller bundle",),
        "new": ("puller bundle new",),
        "nodes": ("puller fleet status",),
        "noop": ("puller run --noop",),
        "package": ("puller bundle build", "puller ensure package NAME"),
        "parser": ("puller lint",),
        "pause": ("puller disable",),
        "pillar": ("puller hiera lookup",),
        "ping": ("puller doctor",),
        "plan": ("puller run --noop",),
        "play": ("puller apply",),
        "playbook": ("puller apply",),
        "publish": ("puller site publish",),
        "pull": ("puller run",),
        "push": ("puller site push",),
        "reconcile": ("puller run",),
        "release": ("puller site publish",),
        "reset": ("puller rollback",),
        "resource": ("puller state", "puller ensure"),
        "restore": ("puller rollback",),
        "resume": ("puller enable",),
        "revert": ("puller rollback",),
        "secret": ("puller hiera encrypt",),
        "setup": ("puller facts", "puller install-units"),
        "show": ("puller status", "puller explain"),
        "start": ("puller enable", "puller run"),
        "stop": ("puller disable",),
        "suspend": ("puller disable",),
        "sync": ("puller run",),
        "template": ("puller render",),
        "uncordon": ("puller enable",),
        "undo": ("puller rollback",),
        "update": ("puller run",),
        "upgrade": ("puller run",),
        "validate": ("puller lint", "puller config check"),
        "vault": ("puller hiera encrypt",),
        "why": ("puller explain",),
    },
    "puller site": {
        "add": ("puller site publish",),
        "check": ("puller site verify",),
        "clean": ("puller site prune",),
        "clone": ("puller site mirror",),
        "copy": ("puller site mirror", "puller site push"),
        "create": ("puller site init",),
        "delete": ("puller site withdraw",),
        "deploy": ("puller site push",),
        "gc": ("puller site prune",),
        "log": ("puller site history",),
        "ls": ("puller site list",),
        "new": ("puller site init",),
        "pause": ("puller site halt",),
        "remove": ("puller site withdraw",),
        "resume": ("puller site rollout --resume",),
        "revert": ("puller site back",),
        "rollback": ("puller site back",),
        "show": ("puller site list",),
        "sign": ("puller site refresh",),
        "status": ("puller site list",),
        "stop": ("puller site halt",),
        "sync": ("puller site push",),
        "undo": ("puller site back",),
        "unpublish": ("puller site withdraw",),
        "upload": ("puller site push",),
        "validate": ("puller site verify",),
    },
    "puller bundle": {
        "list": ("puller site list",),
        "check": ("puller lint", "puller test"),
        "create": ("puller bundle new",),
        "init": ("puller bundle new",),
        "pack": ("puller bundle build",),
        "package": ("puller bundle build",),
        "publish": ("puller site publish",),
        "push": ("puller site publish",),
        "show": ("puller bundle inspect",),
        "validate": ("puller lint",),
    },
    "puller fleet": {
        "dashboard": ("puller fleet page",),
        "delete": ("puller fleet forget",),
        "hosts": ("puller fleet status",),
        "list": ("puller fleet status",),
        "load": ("puller fleet import",),
        "ls": ("puller fleet status",),
        "nodes": ("puller fleet status",),
        "pages": ("puller fleet page",),
        "remove": ("puller fleet forget",),
        "report": ("puller fleet status", "puller fleet page"),
        "serve": ("puller fleet serve-reports", "puller fleet page"),
        "show": ("puller fleet status",),
    },
    "puller config": {
        "edit": ("puller config sample",),
        "get": ("puller config check",),
        "set": ("puller config sample",),
        "view": (
            "puller config check",
            "puller config sample",
        ),
        "init": ("puller config sample",),
        "lint": ("puller config check",),
        "new": ("puller config sample",),
        "show": ("puller config check", "puller config sample"),
        "validate": ("puller config check",),
    },
    "puller quarantine": {
        "delete": ("puller quarantine clear",),
        "release": ("puller quarantine clear",),
        "remove": ("puller quarantine clear",),
        "show": ("puller quarantine list",),
    },
    "puller hiera": {
        "get": ("puller hiera lookup",),
        "show": ("puller hiera resolve",),
        "view": ("puller hiera resolve",),
    },
    "puller ensure": {
        "timer": ("puller ensure cron",),
        "apt": ("puller ensure package",),
        "blockinfile": ("puller ensure block",),
        "cmd": ("puller ensure exec",),
        "command": ("puller ensure exec",),
        "copy": ("puller ensure file",),
        "cronjob": ("puller ensure cron",),
        "dir": ("puller ensure file NAME directory",),
        "directory": ("puller ensure file NAME directory",),
        "dnf": ("puller ensure package",),
        "git": ("puller ensure checkout",),
        "ini": ("puller ensure setting",),
        "ini_file": ("puller ensure setting",),
        "lineinfile": ("puller ensure line",),
        "modprobe": ("puller ensure kernel_module",),
        "pkg": ("puller ensure package",),
        "repo": ("puller ensure repository",),
        "shell": ("puller ensure exec",),
        "symlink": ("puller ensure link",),
        "systemd": ("puller ensure service",),
        "template": ("puller ensure file",),
        "unarchive": ("puller ensure archive",),
        "yum": ("puller ensure package",),
        "yumrepo": ("puller ensure repository",),
    },
}

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--ask-become-pass": ("Start Puller as root.",),
    "--now": (_ONE_RUN,),
    "--once": (_ONE_RUN,),
    "--syntax-check": ("To find errors in a bundle, use `puller lint SOURCE`.",),
    "--watch": ("To repeat the command, use `watch puller status`.",),
    "--apply": ("Without `--noop`, the command changes the machine.",),
    "--auto-approve": (_NEVER_ASKS,),
    "--batch": ("--percent NUMBER",),
    "--become": ("Start Puller as root.",),
    "--canary": ("--percent NUMBER", "--channel NAME"),
    "--check": ("--noop",),
    "--color-off": ("--color never",),
    "--comment": ("--reason REASON",),
    "--conf": ("--config FILE",),
    "--config-file": ("--config FILE",),
    "--debug": ("--verbose",),
    "--duration": ("--until TIME", "--over DURATION"),
    "--dryrun": ("--noop",),
    "--env": ("--environment NAME", "--channel NAME"),
    "--expires": ("--until TIME",),
    "--extra-vars": ("--set KEY=VALUE", _HOST_DATA),
    "--file": ("--output FILE", "--data FILE"),
    "--for": ("--until TIME",),
    "--force": (_NEVER_ASKS,),
    "--host": ("--where FACT=VALUE", "--facts FILE", _ONE_HOST),
    "--inventory": ("--fleet FILE", _ONE_HOST),
    "--json": ("--format json",),
    "--limit": ("--where FACT=VALUE", "--percent NUMBER", _ONE_HOST),
    "--local": ("--offline",),
    "--message": ("--reason REASON",),
    "--name": (_NO_STATE,),
    "--no-color": ("--color never",),
    "--no-colour": ("--color never",),
    "--node": ("--where FACT=VALUE", "--facts FILE", _ONE_HOST),
    "--onetime": (_ONE_RUN,),
    "--out": ("--output FILE",),
    "--output": ("--format json",),
    "--path": (_NO_STATE,),
    "--plan": ("--noop",),
    "--percentage": ("--percent NUMBER",),
    "--resource": ("--only REFERENCE",),
    "--serial": ("--percent NUMBER", _ONE_HOST),
    "--set": (_HOST_DATA,),
    "--set-var": ("--set KEY=VALUE",),
    "--simulate": ("--noop",),
    "--skip-tags": ("--only REFERENCE",),
    "--state": (_NO_STATE,),
    "--sudo": ("Start Puller as root.",),
    "--tags": ("--only REFERENCE",),
    "--target": ("--only REFERENCE",),
    "--test": ("--noop", _ONE_RUN),
    "--trace": ("--verbose",),
    "--values": ("--data FILE",),
    "--var": ("--set KEY=VALUE",),
    "--vars": ("--data FILE",),
    "--what-if": ("--noop",),
    "--yaml": ("--format yaml",),
    "--yes": (_NEVER_ASKS,),
    "-C": ("--noop",),
    "-D": ("--diff", "--set KEY=VALUE"),
    "-K": ("Start Puller as root.",),
    "-b": ("Start Puller as root.",),
    "-c": ("--config FILE",),
    "-e": ("--set KEY=VALUE", _HOST_DATA),
    "-f": ("--data FILE", "--store FILE"),
    "-i": ("--fleet FILE", _ONE_HOST),
    "-l": ("--where FACT=VALUE", _ONE_HOST),
    "-m": ("--reason REASON",),
    "-o": ("--format json",),
    "-t": (_ONE_RUN,),
    "-y": (_NEVER_ASKS,),
}


def unknown_command(context: click.Context, word: str, known: Sequence[str]) -> str:
    """Return the message about an unknown command of the group of ``context``. ``known`` has its commands."""
    group = context.command_path
    message = f"Unknown command `{group} {word}`.".replace("`puller ", "`", 1)
    if answers := commands_named(context, word):
        return f"{message} Use {_choice(answers)}."
    if similar := similar_commands(context, word, known):
        return f"{message} Similar: {_quoted(similar)}."
    topic = group.replace("puller", "puller help", 1)
    return f"{message} To list all commands, use `{topic}`."


def commands_named(context: click.Context, word: str) -> tuple[str, ...]:
    """Return the commands for a word: by a synonym, by a type, or of the same name in another group."""
    return _commands_by_word(context).get(word, ())


def similar_commands(context: click.Context, word: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return at most three commands with a similar name, nearest first.

    Commands of the group of ``context`` come first. If none is similar, the synonyms and the other groups count.
    """
    if own := _similar(word, known):
        return tuple(f"{context.command_path} {name}" for name in own)
    answers = _commands_by_word(context)
    names = _similar(word, answers, similarity=VERY_SIMILAR, shortest=3)
    commands = [command for name in names for command in answers[name]]
    return tuple(dict.fromkeys(commands))[:_SUGGESTED]


def _commands_by_word(context: click.Context) -> dict[str, tuple[str, ...]]:
    """Return the answers to all known words in the group of ``context``."""
    root = context.find_root()
    commands = root.command
    if not isinstance(commands, click.Group):
        return {}
    answers: dict[str, tuple[str, ...]] = {}
    for name in commands.list_commands(root):
        answers[name] = (f"puller {name}",)
    for group in _GROUPS:
        command = commands.get_command(root, group)
        for name in command.list_commands(root) if isinstance(command, click.Group) else ():
            answers[name] = (*answers.get(name, ()), f"puller {group} {name}")
    answers |= {name: (f"puller ensure {name}",) for name in type_names()}
    answers |= _COMMANDS["puller"]
    return answers | dict(_COMMANDS.get(context.command_path, {}))


def _similar(word: str, known: Iterable[str], *, similarity: float = SIMILAR, shortest: int = 2) -> list[str]:
    """Return at most three similar names. Names that begin with ``word`` come first."""
    names = list(known)
    if len(word.strip("-")) < shortest:
        return []
    completions = [name for name in names if name.startswith(word)]
    nearest = get_close_matches(word, names, _SUGGESTED, similarity)
    return list(dict.fromkeys([*completions, *nearest]))[:_SUGGESTED]


def unknown_option(command: str, option: str, known: Iterable[str]) -> str:
    """Return the message about an unknown option. ``known`` has the options of the command."""
    names = list(known)
    message = f"Unknown option `{option}` of `{command}`."
    for answer in _OPTIONS.get(option, ()):
        if not answer.startswith("-"):
            return f"{message} {answer}"
        if answer.partition(" ")[0] in names:
            return f"{message} Use `{answer}`."
    long_names = [name for name in names if name.startswith("--")]
    if option.startswith("--") and (similar := _similar(option, long_names)):
        return f"{message} Similar: {_quoted(similar)}."
    return f"{message} To list its options, use `{command.replace('puller', 'puller help', 1)}`."


def _choice(answers: Sequence[str]) -> str:
    return " or ".join(f"`{answer}`" for answer in answers)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
