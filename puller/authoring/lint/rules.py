"""All rules of lint: the names by which findings are told apart, and warnings are switched off."""

from collections.abc import Mapping
from typing import Final

import msgspec

from puller.authoring.lint.findings import Severity

UNPACKABLE: Final = "unpackable-file"
"""The rule that packing a bundle holds it to as well."""
_ERROR, _WARNING, _UNCHECKED = Severity.ERROR, Severity.WARNING, Severity.UNCHECKED


class Rule(msgspec.Struct, frozen=True):
    """One rule."""

    name: str
    severity: Severity
    """Of its findings; those of an error that depend on what only hosts know are unchecked."""
    summary: str
    """The rule in one sentence."""


_ROWS: Final = (
    # The bundle as a host reads it.
    Rule("manifest", _ERROR, "A host would refuse the manifest."),
    Rule("host-warning", _WARNING, "Every host warns of this when it reads the manifest."),
    Rule("resource-fails", _WARNING, "A resource fails with the facts at hand."),
    Rule("depends-on-facts", _UNCHECKED, "An expression needs facts that are not at hand."),
    # Names, filters and functions.
    Rule("unknown-name", _ERROR, "No host can have this data, fact or variable."),
    Rule("misspelt-fact", _WARNING, "A fact that may be a host's own is named almost like one of Puller's."),
    Rule("unknown-function", _ERROR, "There is no such filter, test or function."),
    Rule("expression-syntax", _ERROR, "An expression cannot be read."),
    # Templates and files.
    Rule("template-syntax", _ERROR, "A template cannot be read by its engine."),
    Rule("missing-file", _ERROR, "The bundle lacks a file or directory that its manifest or a template names."),
    Rule(UNPACKABLE, _ERROR, "A link, a device or the like cannot be packed."),
    Rule("unused-file", _WARNING, "Nothing in the bundle uses this file."),
    Rule("unused-library", _WARNING, "Nothing in the bundle uses this library."),
    # Commands.
    Rule("command-syntax", _ERROR, "A command line cannot be split into words."),
    Rule("shell-operator", _ERROR, "A command without a shell has a redirection, a pipe or another word of the shell."),
    Rule("shell-syntax", _WARNING, "A command without a shell has a character that only a shell would replace."),
    Rule("relative-program", _WARNING, "The path of a program is relative, and no `cwd` says to what."),
    Rule("health-check-limit", _WARNING, "A health check waits for something else, and has no time limit of its own."),
    Rule("goss-file", _ERROR, "A goss file asks for something that is not answered here."),
    Rule("secret-on-command-line", _WARNING, "The process list shows a secret while a command runs."),
    # Data.
    Rule("unreachable-override", _ERROR, "No entry of the hierarchy's order can lead to this override section."),
    Rule("unused-data", _WARNING, "Nothing in the bundle uses this key of data."),
    Rule("misspelt-annotation", _ERROR, "An annotation is misspelt, so that it protects or checks nothing."),
    Rule("annotation", _WARNING, "A comment that looks like an annotation is not heeded."),
    # Notation.
    Rule("foreign-expression", _WARNING, "`${ … }` is ordinary text; an expression is written `{{ … }}`."),
    Rule("unquoted-octal", _WARNING, "YAML reads a number that begins with 0 as octal; quote it."),
    # Lint itself.
    Rule("suppression", _WARNING, "A suppression names no rule, or a rule that cannot be switched off."),
)  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _ROWS}
"""By name."""


def may_be_switched_off(name: str) -> bool:
    """Whether a rule is one of warnings that authors can decide about."""
    return name in RULES and RULES[name].severity is Severity.WARNING and name != "suppression"
