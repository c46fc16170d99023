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
    found = ResolvedResource(
        reference="file#/a", where="a:1", fingerprint=text.encode(), contents={"/a": content}
    )
    return Resolution((found,), {})


def of(old: str, new: str, *names: str) -> Preview:
    """Return a preview of machines whose names replace NAME in both texts."""

    def side(template: str) -> Resolver:
        def resolved(machine: Machine) -> Outcome:
            return holding(template.replace("NAME", machine.name))

        return resolved

    return preview(side(old), side(new), [Machine(name, {}) for name in names])


def test_lines_around_a_change_may_name_the_machine() -> None:
    found = of("NAME\nold\n", "NAME\nnew\n", "a", "b")
    (group,) = found.groups
    assert group.machines == ("a", "b")
    assert " a\n-old\n+new\n" in group.changes[0].differences[-1].diff


def test_lines_that_change_and_name_the_machine_are_groups_of_their_own() -> None:
    assert len(of("old\n", "NAME\n", "a", "b").groups) == 2


def test_the_largest_group_comes_first() -> None:
    def new(machine: Machine) -> Outcome:
        return holding("x" if machine.name == "one" else "y")

    machines = [Machine(name, {}) for name in ("one", "two", "three")]
    found = preview(lambda _: holding("old"), new, machines)
    assert [group.machines for group in found.groups] == [("two", "three"), ("one",)]


def test_without_machines_nothing_changes() -> None:
    found = preview(lambda _: holding("old"), lambda _: holding("new"), [])
    assert (found.total, found.changes, found.fails) == (0, False, False)


def test_a_comment_is_as_long_as_services_take_it() -> None:
    names = [f"host{number}" for number in range(300)]
    found = of("", "NAME\n" * 60, *names)
    comment = markdown(found)
    assert len(comment) <= MARKDOWN_LIMIT
    assert "more groups: too long for a comment" in comment


def test_neither_a_terminal_nor_a_comment_is_steered_by_what_is_shown() -> None:
    found = of("", "\x1b[2J```\n</details>\u2028\n", "a\x1b[1m`b")
    assert "\x1b" not in as_text(found)
    assert "\x1b" not in markdown(found)
    assert "\u2028" not in markdown(found)
    assert "````diff" in markdown(found)


def test_a_bundle_that_is_refused_everywhere_is_no_success() -> None:
    found = preview(lambda _: NO, lambda _: NO, [Machine("a", {})])
    assert found.fails
    assert "1 of 1 machine (a): the bundle fails as before: no" in as_text(found)
