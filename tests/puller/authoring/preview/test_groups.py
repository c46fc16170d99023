"""Machines grouped by their changes."""

from foundation.problems import Problem, ProblemCode
from puller.authoring.preview.differences import Outcome, Refusal
from puller.authoring.preview.groups import Machine, Preview, Resolver, preview
from puller.authoring.preview.preview_formats import MARKDOWN_LIMIT, as_text
from puller.authoring.preview.preview_formats import as_markdown as markdown
from puller.authoring.resolution import Resolution, ResolvedContent, ResolvedResource

NO = Refusal((Problem(code=ProblemCode.INVALID_MANIFEST, message="no"),))


def holding(text: str) -> Resolution:
    content = ResolvedContent(len(text), text.encode(), text)
    resolved_resource = ResolvedResource(
        reference="file#/a", where="a:1", fingerprint=text.encode(), contents={"/a": content}
    )
    return Resolution((resolved_resource,), {})


def of(old: str, new: str, *names: str) -> Preview:
    """Return a preview of machines whose names replace NAME in both texts."""

    def side(template: str) -> Resolver:
        def resolved(machine: Machine) -> Outcome:
            return holding(template.replace("NAME", machine.name))

        return resolved

    return preview(side(old), side(new), [Machine(name, {}) for name in names])


def test_lines_around_a_change_may_name_the_machine() -> None:
    result = of("NAME\nold\n", "NAME\nnew\n", "a", "b")
    (group,) = result.groups
    assert group.machines == ("a", "b")
    assert " a\n-old\n+new\n" in group.changes[0].differences[-1].diff


def test_changed_lines_with_host_names_form_their_own_groups() -> None:
    assert len(of("old\n", "NAME\n", "a", "b").groups) == 2


def test_the_largest_group_comes_first() -> None:
    def new(machine: Machine) -> Outcome:
        return holding("x" if machine.name == "one" else "y")

    machines = [Machine(name, {}) for name in ("one", "two", "three")]
    result = preview(lambda _: holding("old"), new, machines)
    assert [group.machines for group in result.groups] == [("two", "three"), ("one",)]


def test_without_machines_nothing_changes() -> None:
    result = preview(lambda _: holding("old"), lambda _: holding("new"), [])
    assert (result.total, result.changes, result.fails) == (0, False, False)


def test_a_comment_is_as_long_as_services_take_it() -> None:
    names = [f"host{number}" for number in range(300)]
    result = of("", "NAME\n" * 60, *names)
    comment = markdown(result)
    assert len(comment) <= MARKDOWN_LIMIT
    assert "more groups: too long for a comment" in comment


def test_shown_text_controls_neither_terminal_nor_comment() -> None:
    result = of("", "\x1b[2J```\n</details>\u2028\n", "a\x1b[1m`b")
    assert "\x1b" not in as_text(result)
    assert "\x1b" not in markdown(result)
    assert "\u2028" not in markdown(result)
    assert "````diff" in markdown(result)


def test_a_bundle_that_is_refused_everywhere_is_no_success() -> None:
    result = preview(lambda _: NO, lambda _: NO, [Machine("a", {})])
    assert result.fails
    assert "1 of 1 machine (a): the bundle fails as before: no" in as_text(result)
