"""Templates of many shapes, rendered repeatedly by every engine: the time of a rendering, and Puller's overhead.

    python tests/benchmarks/bench_templates.py [--rounds 9] [--shapes page,maps] [--seconds 0.03]

* Each engine has the same template in its own language, parsed once. All must render the same text, except for white
  space.
* *Go* is Go's own ``text/template``, in a program that is built without network (``render.go``). Without ``go`` its
  columns are omitted. *Sandbox* is Jinja2's unchanged ``ImmutableSandboxedEnvironment``, *Jinja2* is that library
  without a sandbox.
* Times are processor time, medians over the rounds. The engines take turns (A B C A B C), so that a busy moment of the
  machine affects all of them.
* The last tables show small expressions of manifests, each compiled once, and the time to parse and compile a template.
"""

import argparse
import functools
import json
import operator
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hiera.expressions.expressions import Scope
from hiera.expressions.jinja import compile_expression
from puller.templates.gotemplate.go_engine import GoEngine
from puller.templates.jet.jet_engine import JetEngine
from puller.templates.jinja import JinjaEngine
from puller.templates.scope import TemplateScope

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.template_shapes import EXPRESSIONS, SHAPES, Shape, data, facts

Run = Callable[[int], float]
"""Render this number of times, and return the seconds of processor time."""


@dataclass
class Contender:
    """An engine with its parsed template. ``samples`` are seconds for each rendering."""

    name: str
    text: str
    run: Run
    samples: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        return statistics.median(self.samples)


def timed(call: Callable[[], Any]) -> Run:
    def run(count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            call()
        return time.process_time() - start

    return run


def rendering(name: str, render: Callable[[], str]) -> Contender:
    return Contender(name, render(), timed(render))


# -- the engines ------------------------------------------------------------------------------------


def scope() -> TemplateScope:
    return TemplateScope(facts(), data(), {})


def look_up(values: Any, path: str) -> Any:
    return functools.reduce(operator.getitem, path.split("."), values)


def of_puller(shape: Shape) -> Iterator[Contender]:
    values = scope()
    functions = {"lookup": functools.partial(look_up, values)}
    go = GoEngine().compile("shape", shape.go)
    yield rendering("go", lambda: go.render(values, functions))
    if shape.jet is not None:
        jet = JetEngine(loader=shape.files.get).compile("shape", shape.jet)
        yield rendering("jet", lambda: jet.render(values, functions))
    names = Scope(facts(), data()).names
    jinja = JinjaEngine(files=shape.files).compile("shape", shape.jinja)
    yield rendering("jinja", lambda: jinja.render_names(names))


def of_jinja2(shape: Shape) -> Iterator[Contender]:
    values: dict[str, Any] = {"facts": facts(), "data": data()}
    values["lookup"] = functools.partial(look_up, values)
    for name, kind in ("Sandbox", ImmutableSandboxedEnvironment), ("Jinja2", jinja2.Environment):
        loader = jinja2.DictLoader(shape.files)
        environment = kind(trim_blocks=True, keep_trailing_newline=True, loader=loader)
        render = environment.from_string(shape.jinja).render
        yield rendering(name, functools.partial(render, values))


class Go:
    """The program with Go's templates, which reads shapes and counts."""

    def __init__(self, program: Path, given: Path) -> None:
        self._process = subprocess.Popen(
            [program, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, shape: str, count: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(f"{shape}\t{count}", file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the program of Go gives nothing for {shape}")
        return json.loads(answer)

    def contender(self, shape: Shape) -> Contender:
        return Contender("Go", self.ask(shape.name, 0), lambda count: self.ask(shape.name, count) / 1e9)

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def go_program() -> Iterator[Go | None]:
    """Yield the program, built in a temporary directory, or None without Go."""
    if shutil.which("go") is None:
        print("There is no go: its own text/template is left out, and the ratios to it.\n")
        yield None
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        shutil.copy(Path(__file__).with_name("render.go"), directory)
        (directory / "go.mod").write_text("module render\n\ngo 1.19\n")
        shapes = {shape.name: shape.go for shape in SHAPES}
        provided = {"dot": {"facts": facts(), "data": data()}, "shapes": shapes}
        (directory / "given.json").write_text(json.dumps(provided))
        settings = {
            "GOFLAGS": "-mod=mod",
            "GOPROXY": "off",
            "GOCACHE": f"{name}/cache",
            "GOPATH": f"{name}/path",
        }
        command = ["go", "build", "-o", "render", "."]
        subprocess.run(command, cwd=name, env=os.environ | settings, check=True)
        go = Go(directory / "render", directory / "given.json")
        try:
            yield go
        finally:
            go.close()


# -- measuring --------------------------------------------------------------------------------------


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines without indentation and blank lines, in which the languages differ."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def measure(running: list[Contender], rounds: int, seconds: float) -> dict[str, float]:
    """Return seconds for each rendering by contender, with rounds of about ``seconds`` each."""
    counts = [max(1, round(seconds / (item.run(3) / 3 + 1e-7))) for item in running]
    for _ in range(rounds):
        for item, count in zip(running, counts, strict=True):
            item.samples.append(item.run(count) / count)
    return {item.name: item.time for item in running}


def show(title: str, times: dict[str, float], ratios: dict[str, tuple[str, str]]) -> None:
    columns = [f"{times[name] * 1e6:8.0f}" if name in times else "       –" for name in NAMES]
    for above, below in ratios.values():
        known = above in times and below in times
        columns.append(f"{times[above] / times[below]:13.2f}" if known else f"{'–':>13}")
    print(f"{title:14}{''.join(columns)}")


NAMES = ("Go", "go", "jet", "Sandbox", "Jinja2", "jinja")
RATIOS = {name: (name, below) for name, below in (("go", "Go"), ("jet", "Go"), ("jinja", "Sandbox"))}


def measure_shapes(chosen: list[Shape], rounds: int, seconds: float) -> None:
    heads = [f"{name:>8}" for name in NAMES] + [f"{a + '/' + b:>13}" for a, b in RATIOS.values()]
    print(f"{'µs a rendering':14}{''.join(heads)}")
    with go_program() as go:
        for shape in chosen:
            running = [*([go.contender(shape)] if go else []), *of_puller(shape), *of_jinja2(shape)]
            if len({lines_of(item.text) for item in running}) != 1:
                raise SystemExit(f"the engines do not give the same text for {shape.name}")
            show(shape.name, measure(running, rounds, seconds), RATIOS)


def measure_expressions(rounds: int, seconds: float) -> None:
    names, sandbox = Scope(facts(), data()).names, ImmutableSandboxedEnvironment()
    values = {"facts": facts(), "data": data()}
    print(f"\n{'µs an expression':60}{'Sandbox':>8}{'hiera':>8}   ratio")
    for source in EXPRESSIONS:
        ours, theirs = compile_expression(source), sandbox.compile_expression(source)
        running = [
            Contender("hiera", "", timed(functools.partial(ours, names))),
            Contender("Sandbox", "", timed(functools.partial(theirs, values))),
        ]
        times = measure(running, rounds, seconds / 3)
        sandbox_time, ours_time = times["Sandbox"], times["hiera"]
        print(f"{source:60}{sandbox_time * 1e6:8.1f}{ours_time * 1e6:8.1f}   {ours_time / sandbox_time:5.2f}")


def measure_compiling(rounds: int, seconds: float) -> None:
    """Parse and compile the page. Puller's Jinja2 caches code, so each text differs."""
    shape, numbers = SHAPES[0], iter(range(10**9))

    def anew(text: str) -> str:
        return f"{text}{next(numbers)}"

    plain = ImmutableSandboxedEnvironment(trim_blocks=True)
    running = [
        Contender("go", "", timed(lambda: GoEngine().compile("page", anew(shape.go)))),
        Contender("jet", "", timed(lambda: JetEngine().compile("page", anew(shape.jet or "")))),
        Contender("Sandbox", "", timed(lambda: plain.from_string(anew(shape.jinja)))),
        Contender("jinja", "", timed(lambda: JinjaEngine().compile("page", anew(shape.jinja)))),
    ]
    times = measure(running, rounds, seconds)
    print("\nms until the page is compiled: ", end="")
    print(", ".join(f"{name} {time * 1e3:.2f}" for name, time in times.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.03)
    parser.add_argument("--shapes", default=",".join(shape.name for shape in SHAPES))
    options = parser.parse_args()
    names = options.shapes.split(",")
    chosen = [shape for shape in SHAPES if shape.name in names]
    measure_shapes(chosen, options.rounds, options.seconds)
    measure_expressions(options.rounds, options.seconds)
    measure_compiling(options.rounds, options.seconds)


if __name__ == "__main__":
    main()
