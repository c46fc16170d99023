"""Statements, compiled to functions of the frame that return the printed text.

* A body is its pieces joined. Pieces that do not depend on the frame are text from the start.
* A failing statement does not restore the frame. Only ``try`` does, since any other failure ends the rendering.
* ``returned`` follows Jet: the result of the last ``return``, or of the last branch that ran. ``return`` does not end a
  body, but a loop stops at a value.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from puller.templates.govalue.types import MISSING, GoError, LazyMap, UnlistedMap
from puller.templates.jet.calls import CallCompiler
from puller.templates.jet.frame import ROOT_NAMES, BlockCode, Content, Context, Frame, Output, Value
from puller.templates.jet.nodes import (
    Action,
    Assignment,
    Block,
    Body,
    Catch,
    Chain,
    Dot,
    Expression,
    Field,
    If,
    Include,
    Name,
    Range,
    Return,
    Statement,
    Target,
    Text,
    Try,
    Underscore,
    Yield,
    YieldContent,
)
from puller.templates.jet.values import rows, rows_are_boxed
from puller.templates.template_errors import (
    Exceeded,
    FunctionError,
    LimitError,
    Pieces,
    TemplateError,
    TemplateSource,
    similar_names,
)

_ROUNDS_BETWEEN_LOOKS: Final = 128

LONG_BODY: Final = 256
"""Minimum statements of a body that counts the text of each, since many short texts are long together."""

Effect = Callable[[Frame], None]
Store = Callable[[Frame, Any], None]


class Given(NamedTuple):
    """The arguments of a block's run, and their names."""

    arguments: Sequence[tuple[str, Value | None]]
    names: frozenset[str]


class StatementCompiler(CallCompiler):
    """Compiles the statements of one template. ``path`` is the template's, from ``/``."""

    def __init__(self, source: TemplateSource) -> None:
        super().__init__(source)
        self.path = "/" + source.name.lstrip("/")

    def body(self, statements: Body) -> Output:
        """Return code for a list of statements. Names declared in it end with it."""
        pieces: list[str] = [""]
        runs: list[tuple[int, Output]] = []
        for statement in statements:
            if isinstance(statement, Text):
                pieces[-1] += statement.text
            else:
                runs.append((len(pieces), self.statement(statement)))
                pieces += ["", ""]
        if not runs:
            return _constant(pieces[0])
        joined = _joined(pieces, runs) if len(runs) <= LONG_BODY else _joined_in_parts(pieces, runs)
        return _scoped(joined) if any(map(_declares, statements)) else joined

    def statement(self, node: Statement) -> Output:
        """Return code for a statement."""
        match node:
            case Text(text=text):
                return _constant(text)
            case Action():
                return self._action(node)
            case If():
                return self._if(node)
            case Range():
                return self._range(node)
            case Block():
                return self._block(node)
            case Yield():
                return self._yield(node)
            case YieldContent():
                return self._yield_content(node)
            case Include():
                return self._include(node)
            case Return():
                return self._return(node)
            case Try():
                return self._try(node)

    def _action(self, node: Action) -> Output:
        if node.assignment is None:
            return self.pipeline(node.pipeline)
        assign = self._assignment(node.assignment)
        if not node.pipeline:
            return _silent(assign)
        return _after(assign, self.pipeline(node.pipeline))

    # Variables

    def _assignment(self, node: Assignment) -> Effect:
        stores = [self._store(target, node.declares) for target in node.targets]
        provided = [self.value(value) for value in node.values]
        if node.looks_up:
            return _look_up(provided[0], *stores)

        if len(stores) == 1:
            return _assign(stores[0], provided[0])

        def assign(frame: Frame) -> None:
            for store, value in zip(stores, provided, strict=True):
                store(frame, value(frame))

        return assign

    def _store(self, target: Target, declares: bool) -> Store:
        match target:
            case Underscore():
                return _discard
            case Dot() if declares:  # Jet accepts it as a variable, which cannot be read
                return _discard
            case Name(name=name) if declares:
                return lambda frame, value: frame.variables.__setitem__(name, [value])
            case Name():
                return self._store_name(target)
            case Dot(offset=offset):
                return lambda frame, value: self.fail(offset, "cannot assign to .")
            case Field() | Chain():
                return self._store_key(target)

    def _store_name(self, target: Name) -> Store:
        name, offset = target.name, target.offset
        root = name.lower() if name in ROOT_NAMES else ""

        def store(frame: Frame, value: Any) -> None:
            cell = frame.variables.get(name)
            if cell is not None:
                cell[0] = value
            elif frame.scope is not None and (root or name in frame.scope):
                frame.scope[root or name] = value
            else:
                hint = similar_names(name, frame.variables)
                self.fail(offset, f"cannot assign to {name}: it is not declared, {name} := … does that{hint}")

        return store

    def _store_key(self, target: Field | Chain) -> Store:
        keys, last = target.keys[:-1], target.keys[-1]
        on_dot = isinstance(target, Field)
        base = self.value(target.base) if isinstance(target, Chain) else None

        def store(frame: Frame, value: Any) -> None:
            container = base(frame) if base else frame.dot
            for key in keys:
                container = self.step(container, key)
            # As in Jet, assigning to a key has no effect on a boxed dot, or on a value other than a map.
            if type(container) in (dict, LazyMap, UnlistedMap) and not (on_dot and frame.boxed and not keys):
                if value is MISSING:
                    container.pop(last.name, None)
                else:
                    container[last.name] = value

        return store

    # Branches and loops

    def _if(self, node: If) -> Output:
        condition, body = self.truth(node.condition), self.body(node.body)
        otherwise = self.body(node.otherwise) if node.otherwise is not None else _nothing

        def run(frame: Frame) -> str:
            return body(frame) if condition(frame) else otherwise(frame)

        if node.assignment is None:
            return run
        after = _after(self._assignment(node.assignment), run)
        return _scoped(after) if node.assignment.declares else after

    def _range(self, node: Range) -> Output:
        expression, offset = self.value(node.expression), node.expression.offset
        stores = [self._store(target, node.declares) for target in node.targets]
        store_key, store_item = [*stores, None, None][:2]
        # A declared name is a new cell, which needs no call.
        key_name, item_name = [*(_declared(target, node) for target in node.targets), "", ""][:2]
        sets_dot, declares = len(stores) < 2, node.declares
        body = self.body(node.body)
        otherwise = self.body(node.otherwise) if node.otherwise is not None else _nothing

        def run(frame: Frame) -> str:
            value = expression(frame)
            outer = frame.dot, frame.boxed, frame.variables
            try:
                items = rows(value)
            except FunctionError as what:
                self.fail(offset, f"cannot range over {node.expression}: {what}")
            budget = frame.budget
            pieces, texts = Pieces(budget), list[str]()
            boxed, rounds = rows_are_boxed(value), 0
            if declares:
                frame.variables = frame.variables.copy()
            variables = frame.variables
            try:
                for key, item in items:
                    if rounds == 0:  # the first round, and after each batch of rounds
                        rounds = _ROUNDS_BETWEEN_LOOKS
                        budget.look()
                        pieces.take(texts)
                    rounds -= 1
                    if key_name:
                        variables[key_name] = [key]
                    elif store_key is not None:
                        store_key(frame, key)
                    if item_name:
                        variables[item_name] = [item]
                    elif store_item is not None:
                        store_item(frame, item)
                    if sets_dot:
                        frame.dot, frame.boxed = item, boxed
                    texts.append(body(frame))
                    if frame.returned is not MISSING:
                        break
                pieces.take(texts)
                text = otherwise(frame) if pieces.none else pieces.joined()
            except Exceeded as error:
                self.fail(offset, error)
            frame.dot, frame.boxed, frame.variables = outer
            return text

        return run

    # Blocks

    def block_code(self, node: Block) -> BlockCode:
        """Return the code of a block, which runs at each yield of its name."""
        return BlockCode(
            node.name,
            tuple((p.name, self.value(p.value) if p.value else None) for p in node.parameters),
            self._context(node.context),
            self.body(node.body),
            self.body(node.content) if node.content is not None else None,
            ",".join(map(str, node.parameters)),
            self.path,
        )

    def _block(self, node: Block) -> Output:
        """Compile ``[[ block name(parameters) context ]]``, which also runs the block, with its defaults as arguments.

        The effective block of this name runs. A template that extends this one can override it (``JetEngine``).
        """
        name, offset = node.name, node.offset

        def run(frame: Frame) -> str:
            block = frame.blocks[name]
            provided = Given(block.parameters, frozenset(name for name, _ in block.parameters))
            return self._call_block(frame, offset, block, provided, block.context, block.content)

        return run

    def _yield(self, node: Yield) -> Output:
        """Compile ``[[ yield name(arguments) context ]]``, which runs the effective block of this name at that time.

        An included template can use the blocks of its including templates, below its own (``Frame.inner``).
        """
        name, offset = node.name, node.offset
        arguments = tuple((a.name, self.value(a.value) if a.value else None) for a in node.arguments)
        provided = Given(arguments, frozenset(name for name, _ in arguments))
        context = self._context(node.context)
        content = self.body(node.content) if node.content is not None else None

        def run(frame: Frame) -> str:
            block = frame.blocks.get(name)
            if block is None:
                self.fail(offset, f"unknown block {name!r}{similar_names(name, frame.blocks)}")
            return self._call_block(frame, offset, block, provided, context, content)

        return run

    def _call_block(
        self,
        frame: Frame,
        offset: int,
        block: BlockCode,
        provided: Given,
        context: Context | None,
        content: Output | None,
    ) -> str:
        """Return the output of a block, for ``block`` and ``yield``.

        1. The block can use the variables of the calling place, the arguments, and defaults of omitted parameters. A
           parameter without a default is false.
        2. Content is stored for ``yield content``, with the current variables and the content of the calling place.
        3. Dot becomes the value of the context, if present. The context can use the arguments.
        4. The body runs, one level deeper.
        5. The frame is restored. Declarations and return values of the block are discarded.
        """
        outer = frame.dot, frame.boxed, frame.variables, frame.content, frame.returned
        if provided.arguments or block.parameters:  # 1. variables
            frame.variables = frame.variables.copy()
            self._bind(frame, offset, block, provided)
        if content is not None:  # 2. content
            frame.content = Content(content, frame.variables, frame.content)
        if context is not None:  # 3. dot
            frame.dot, frame.boxed = context.value(frame), frame.boxed and context.is_dot
        budget = frame.budget
        try:  # 4. run
            budget.enter()
            text = block.body(frame)
        except Exceeded as error:
            self.fail(offset, error)
        finally:
            budget.leave()
        # 5. Without ``finally``: a failure ends the template, or a ``try`` restores the frame.
        frame.dot, frame.boxed, frame.variables, frame.content, frame.returned = outer
        return text

    def _bind(self, frame: Frame, offset: int, block: BlockCode, given: Given) -> None:
        variables = frame.variables
        for name, value in given.arguments:
            if value is None:
                self.fail(offset, f"block {block.name}: the parameter {name} requires a value or a default")
            variables[name] = [value(frame)]
        for name, default in block.parameters:
            if name not in given.names:
                variables[name] = [default(frame) if default else False]

    def _nested(self, frame: Frame, offset: int, body: Output) -> str:
        """Run a body one level deeper."""
        try:
            frame.budget.enter()
            return body(frame)
        except Exceeded as error:
            self.fail(offset, error)
        finally:
            frame.budget.leave()

    def _yield_content(self, node: YieldContent) -> Output:
        """Compile ``[[ yield content context ]]``: the body that was passed to the block, or nothing.

        1. The body uses the variables and the content of the place that wrote it, not the block's.
        2. Dot becomes the context, if present.
        3. The body runs, and the frame is restored.
        """
        context = self._context(node.context)

        def run(frame: Frame) -> str:
            content = frame.content
            if content is None:
                return ""
            outer = frame.dot, frame.boxed, frame.variables, frame.returned
            frame.variables, frame.content = content.variables, content.outer  # 1.
            if context is not None:  # 2.
                frame.dot, frame.boxed = context.value(frame), frame.boxed and context.is_dot
            text = content.body(frame)  # 3.
            frame.dot, frame.boxed, frame.variables, frame.returned = outer
            frame.content = content
            return text

        return run

    def _context(self, node: Expression | None) -> Context | None:
        return None if node is None else Context(self.value(node), isinstance(node, Dot))

    # Other templates, return, try

    def _include(self, node: Include) -> Output:
        path, offset, context = self.value(node.path), node.offset, self._context(node.context)

        def run(frame: Frame) -> str:
            desired = path(frame)
            if not isinstance(desired, str):
                self.fail(offset, "the path of a template must be a string")
            program = frame.load(desired, self.path)
            if program is None:
                self.fail(offset, f"unknown template {desired}")
            outer = frame.dot, frame.boxed, frame.blocks
            if context is not None:
                frame.dot, frame.boxed = context.value(frame), frame.boxed and context.is_dot
            if program.blocks:
                frame.blocks = {**frame.blocks, **program.blocks}
            frame.returned = MISSING
            text = self._nested(frame, offset, program.body)
            frame.dot, frame.boxed, frame.blocks = outer
            return text

        return run

    def _return(self, node: Return) -> Output:
        value = self.value(node.value)

        def run(frame: Frame) -> str:
            frame.returned = value(frame)
            return ""

        return run

    def _try(self, node: Try) -> Output:
        body = self.body(node.body)
        catch = self._catch(node.catch) if node.catch else None

        def run(frame: Frame) -> str:
            outer = frame.dot, frame.boxed, frame.variables, frame.content, frame.blocks
            try:
                return body(frame)
            except LimitError:
                raise
            except TemplateError as error:
                frame.dot, frame.boxed, frame.variables, frame.content, frame.blocks = outer
                frame.returned = MISSING
                return catch(frame, error) if catch else ""

        return run

    def _catch(self, node: Catch) -> Callable[[Frame, TemplateError], str]:
        body, name = self.body(node.body), node.name

        def run(frame: Frame, error: TemplateError) -> str:
            outer = frame.variables
            if name:
                # The same text as Jet's err.Error(), which contains no directory here.
                file = posixpath.basename(error.file)
                shown = f'Jet Runtime Error ("/{file}":{error.line}): {error.message}'
                frame.variables = {**outer, name: [GoError(shown)]}
            text = body(frame)
            frame.variables = outer
            return text

        return run


def _declared(target: Target, node: Range) -> str:
    """Return the name that a loop declares, or empty text for an assignment or an unreadable target."""
    return target.name if node.declares and isinstance(target, Name) else ""


def _declares(statement: Statement) -> bool:
    return (
        isinstance(statement, Action) and statement.assignment is not None and statement.assignment.declares
    )


def _nothing(_: Frame) -> str:
    return ""


def _discard(_: Frame, __: Any) -> None:
    return None


def _constant(text: str) -> Output:
    def run(frame: Frame) -> str:
        frame.returned = MISSING
        return text

    return run


def _joined(pieces: list[str], runs: list[tuple[int, Output]]) -> Output:
    """Join pieces of text, with the output of runs at their places."""
    if len(runs) <= 3:
        return _joined_few(pieces, [output for _, output in runs])

    def run(frame: Frame) -> str:
        frame.returned = MISSING
        texts = pieces.copy()
        for place, output in runs:
            texts[place] = output(frame)
        return "".join(texts)

    return run


def _joined_few(pieces: list[str], outputs: list[Output]) -> Output:
    """Join a few pieces without a list. Most bodies are small."""
    if len(outputs) == 1:
        (before, _, after), (only,) = pieces, outputs

        def run(frame: Frame) -> str:
            frame.returned = MISSING
            return f"{before}{only(frame)}{after}"

    elif len(outputs) == 2:
        (before, _, between, _, after), (first, second) = pieces, outputs

        def run(frame: Frame) -> str:
            frame.returned = MISSING
            return f"{before}{first(frame)}{between}{second(frame)}{after}"

    else:
        (before, _, between, _, then, _, after), (first, second, third) = pieces, outputs

        def run(frame: Frame) -> str:
            frame.returned = MISSING
            return f"{before}{first(frame)}{between}{second(frame)}{then}{third(frame)}{after}"

    return run


def _joined_in_parts(pieces: list[str], runs: list[tuple[int, Output]]) -> Output:
    """Join pieces and runs of a body of many statements, and count its text on the way."""
    outputs = dict(runs)

    def run(frame: Frame) -> str:
        frame.returned = MISSING
        parts = Pieces(frame.budget)
        for place, text in enumerate(pieces):
            parts.add(outputs[place](frame) if place in outputs else text)
        return parts.joined()

    return run


def _scoped(body: Output) -> Output:
    def run(frame: Frame) -> str:
        outer = frame.variables
        frame.variables = outer.copy()
        text = body(frame)
        frame.variables = outer
        return text

    return run


def _silent(effect: Effect) -> Output:
    def run(frame: Frame) -> str:
        effect(frame)
        return ""

    return run


def _after(effect: Effect, output: Output) -> Output:
    def run(frame: Frame) -> str:
        effect(frame)
        return output(frame)

    return run


def _assign(store: Store, value: Value) -> Effect:
    return lambda frame: store(frame, value(frame))


def _look_up(value: Value, store: Store, store_found: Store) -> Effect:
    """Compile ``value, found := map[key]``."""

    def assign(frame: Frame) -> None:
        result = value(frame)
        store(frame, result)
        store_found(frame, result is not MISSING)

    return assign
