"""Writing a pipeline as a script with nnpipe, in which each step of training, measuring and so
on is a line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.codegen.description import GeneratedScript
from nnpipe.codegen.syntax import assign, attribute, build_name, call, fill_template, literal
from nnpipe.codegen.syntax import build_function as define
from nnpipe.codegen.unparse import create_remark, find_imports, generate_source, sort_imports
from nnpipe.core.arguments import list_arguments
from nnpipe.core.component import Component
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.workflows.candidates.stages import get_file_suffix
from nnpipe.workflows.pipeline.file import (
    CandidateSettings,
    ModelSettings,
    Pipeline,
    make_file_name,
)

_DOC = """Train, compile and measure with nnpipe, and write a report.

Written by nnpipe. nnpipe run does the same from the pipeline's file, with each
candidate in a process of its own; here all of it is in this one.
"""

_FUNCTIONS = '''
def samples_for(model, dataset, count):
    """Give the function that gives samples to calibrate with."""
    return lambda: map(model.wrapper.preprocess, dataset.calibration(count))


def measured(title, model, dataset, open_session, artifact=None, **components):
    """Measure one way to run a model on the test samples."""
    run = benchmark(
        open_session, dataset=dataset, indices=dataset.split("test"), wrapper=model.wrapper, title=title,
        model=None if components else model, artifact=artifact, components=components, options=OPTIONS, load=LOAD,
    )
    print(f"{title}: {run.summary()}")
    return run
'''

_REPORT = """
document = report_on(create_candidates(runs), TITLE, TYPES)
write_html(document, args.output / "report.html")
print("report:", args.output / "report.html")
"""


@dataclass
class _Script:
    output: Path
    imports: set[tuple[str, str]] = field(default_factory=set)

    def build_call(self, component: Component, *, writes: bool = False) -> ast.expr:
        """Return the call that makes a component, without arguments that have their default.

        A path that the component ``writes`` is taken from the script's argument if it is in the
        pipeline's output folder.
        """
        cls = type(component)
        self.imports.add((cls.__module__, cls.__name__))
        given = {a.name: getattr(component, a.name) for a in list_arguments(cls)}
        defaults = {a.name: a.default for a in list_arguments(cls)}
        named = {key: value for key, value in given.items() if value != defaults[key]}
        return call(
            cls.__name__, **{key: self.value(value, writes=writes) for key, value in named.items()}
        )

    def value(self, value: Any, *, writes: bool = False) -> ast.expr:
        """Return the expression of an argument's value."""
        if isinstance(value, Path):
            if writes and value.is_relative_to(self.output):
                within = value.relative_to(self.output)
                return ast.BinOp(
                    attribute(build_name("args"), "output"), ast.Div(), literal(str(within))
                )
            return call("Path", literal(str(value)))
        if isinstance(value, (tuple, list)):
            kind = ast.Tuple if isinstance(value, tuple) else ast.List
            return kind([self.value(item) for item in value], ast.Load())
        return literal(value)


def generate_pipeline_script(pipeline: Pipeline) -> tuple[GeneratedScript, tuple[str, ...]]:
    """Return the script, and descriptions of the parts of the pipeline that it leaves out."""
    script, left_out = _Script(pipeline.output), []
    compiles = any(
        candidate.way is not None for model in pipeline.models for candidate in model.candidates
    )
    if compiles and pipeline.verify.verify_samples:
        left_out.append("verify: outputs are compared with the trained model's by nnpipe run alone")
    body: list[ast.stmt] = [
        *fill_template("args = arguments()\nargs.output.mkdir(parents=True, exist_ok=True)"),
        assign("dataset", script.build_call(pipeline.dataset)),
        *fill_template("dataset.prepare()\nruns = []"),
    ]
    number = 0
    for place, model in enumerate(pipeline.models):
        body += _generate_model(script, model, place)
        for settings in model.candidates:
            number += 1
            if settings.deployment is not None and settings.deployment.serve:
                left_out.append(
                    f"{settings.title}: a server on this machine is started by nnpipe run alone"
                )
            else:
                body += [
                    create_remark(f"candidate {number}"),
                    *_generate_candidate(script, pipeline, settings, number),
                ]
    types: ast.expr = literal(pipeline.report_types)
    body += [
        create_remark("report"),
        *fill_template(_REPORT, TITLE=literal(pipeline.title), TYPES=types),
    ]
    load: ast.expr = (
        literal(None) if pipeline.load == LoadOptions() else script.build_call(pipeline.load)
    )
    functions = fill_template(_FUNCTIONS, OPTIONS=script.build_call(pipeline.measure), LOAD=load)
    definitions = [
        *functions,
        _generate_arguments(pipeline),
        define("main", [], body, "Carry out the pipeline."),
    ]
    script.imports |= {
        ("nnpipe.measuring.benchmark", "benchmark"),
        ("nnpipe.report.inputs.candidate", "create_candidates"),
        ("nnpipe.report.writers.html", "write_html"),
        ("nnpipe.report.render", "report_on"),
    }
    start = fill_template('if __name__ == "__main__":\n    main()')
    imports = sort_imports([*find_imports(definitions), *_generate_imports(script)])
    module = ast.Module([ast.Expr(ast.Constant(_DOC)), *imports, *definitions, *start], [])
    return GeneratedScript(generate_source(module)), tuple(left_out)


def _generate_model(script: _Script, model: ModelSettings, place: int) -> list[ast.stmt]:
    fitted = call(
        attribute(script.build_call(model.wrapper), "for_dataset"),
        attribute(build_name("dataset"), "spec"),
    )
    found: list[ast.stmt] = [
        create_remark(f"model {place + 1}"),
        assign("model", call(attribute(fitted, "open"))),
    ]
    if model.training is None:
        return [*found, ast.Expr(call("model.load", script.value(model.path)))]
    options, path = (
        script.build_call(model.training, writes=True),
        script.value(model.path, writes=True),
    )
    return [
        *found,
        ast.Expr(call("model.train", build_name("dataset"), options)),
        ast.Expr(call("model.save", path)),
    ]


def _generate_candidate(
    script: _Script, pipeline: Pipeline, settings: CandidateSettings, number: int
) -> Iterator[ast.stmt]:
    title = literal(settings.title)
    stem = f"{number:02d}-{make_file_name(settings.title)}"
    if settings.way is None or settings.runtime is None:
        run = call(
            "measured",
            title,
            build_name("model"),
            build_name("dataset"),
            attribute(build_name("model"), "session"),
        )
    else:
        yield from _generate_compilation(script, pipeline, settings, stem)
        yield assign("runtime", script.build_call(settings.runtime))
        opened: ast.expr = call("runtime.load", build_name("artifact"))
        if settings.deployment is not None:
            script.imports.add(("nnpipe.protocols", "open_session"))
            given = (settings.deployment.protocol, settings.deployment.remote)
            protocol, remote = map(script.build_call, given)
            opened = call("open_session", protocol, build_name("artifact"), remote)
        opener = fill_template(
            "f = lambda artifact=artifact, runtime=runtime: OPENED", OPENED=opened
        )[0]
        assert isinstance(opener, ast.Assign)
        run = call(
            "measured",
            title,
            build_name("model"),
            build_name("dataset"),
            opener.value,
            build_name("artifact"),
            compilers=build_name("compilers"),
            runtime=build_name("runtime"),
        )
    yield from fill_template("runs.append(RUN)", RUN=run)
    yield from fill_template("runs[-1].write(args.output / FILE)", FILE=literal(f"{stem}.json"))


def _generate_compilation(
    script: _Script, pipeline: Pipeline, settings: CandidateSettings, stem: str
) -> Iterator[ast.stmt]:
    way, compilers = settings.way, settings.compilers
    assert way is not None
    between = [
        f"{stem}.step{n}{get_file_suffix(way, compilers[:n])}" for n in range(len(compilers))
    ]
    files = [*between, stem + get_file_suffix(way, compilers)]
    path = fill_template("f = args.output / FILE", FILE=literal(files[0]))[0]
    assert isinstance(path, ast.Assign)
    yield assign("artifact", call("model.export", path.value, literal(way.export)))
    made = [script.build_call(compiler) for compiler in compilers]
    yield assign("compilers", ast.Tuple(made, ast.Load()))
    for place, file in enumerate(files[1:]):
        parts = {
            "PLACE": literal(place),
            "FILE": literal(file),
            "COUNT": literal(pipeline.calibration_samples),
        }
        yield from fill_template("samples = samples_for(model, dataset, COUNT)", **parts)
        yield from fill_template(
            "artifact = compilers[PLACE].compile(artifact, args.output / FILE, samples)", **parts
        )


def _generate_imports(script: _Script) -> list[ast.stmt]:
    return [ast.ImportFrom(module, [ast.alias(title)], 0) for module, title in script.imports]


def _generate_arguments(pipeline: Pipeline) -> ast.stmt:
    text = """
    parser = argparse.ArgumentParser(description="Train, compile and measure with nnpipe.")
    parser.add_argument("--output", type=Path, default=Path(OUTPUT), help="folder of all that is made")
    return parser.parse_args()
    """
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    return define(
        "arguments",
        [],
        fill_template(lines, OUTPUT=literal(str(pipeline.output))),
        "Read the command line.",
    )
