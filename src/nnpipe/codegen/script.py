"""Generation of a script's text from the checked graph of tasks."""

from __future__ import annotations

import ast
import textwrap

from nnpipe.codegen.generator import Generated
from nnpipe.codegen.graph import CodeGraph
from nnpipe.codegen.imports import imports_of, ordered, used_names
from nnpipe.codegen.runtime.function_sources import with_needed
from nnpipe.codegen.syntax import assign, attribute, call, literal, name, quoted
from nnpipe.codegen.syntax import function as define
from nnpipe.codegen.unparse import remark, source_of
from nnpipe.codegen.writer import Writer
from nnpipe.core.argument_checks import check_call

_START = {
    "pytorch": "torch.manual_seed(SEED)",
    "keras": 'keras.utils.set_random_seed(SEED)\nkeras.config.set_image_data_format("channels_last")',
}
_NEEDS = {"pytorch": "PyTorch", "keras": "Keras and TensorFlow"}


def generate(graph: CodeGraph) -> Generated:
    """Return the script of a graph; equal graphs give equal bytes."""
    check_call(generate, locals())
    writer = Writer(graph.script)
    seed = writer.argument(None, "seed", graph.script.seed, "for first weights and the order of samples")
    tasks: list[ast.stmt] = []
    for task in graph.order:
        told = task.name if task.name == task.task else f"{task.name}: {task.task}"
        tasks += [remark(told), *task.write(writer)]
    start = quoted(_START[writer.framework], SEED=seed)
    body = [*quoted("args = arguments()"), *writer.checks, *start, *tasks]
    main = define("main", [], body, "Carry out the tasks, one after another.")
    networks = list(writer.script.definitions.values())
    helpers = with_needed(writer.framework, writer.wanted | (used_names([*networks, main]) & {"used_as"}))
    definitions: list[ast.stmt] = [*helpers.values(), *networks, _arguments(writer), main]
    call_main = quoted('if __name__ == "__main__":\n    main()')
    imports = ordered([*imports_of(definitions), *writer.imports.values()])
    doc = (
        f"{_title(graph)}\n\nWritten by nnpipe. It needs {_needs(graph)}, and not nnpipe; --help tells its arguments.\n"
    )
    module = ast.Module([ast.Expr(ast.Constant(doc)), *imports, *definitions, *call_main], [])
    return Generated(source_of(module), dict(writer.files))


def _title(graph: CodeGraph) -> str:
    told = f"The script {graph.script.name}: {', '.join(task.name for task in graph.order)}."
    return textwrap.shorten(told, 85, placeholder=" ...")  # one line, with its quotes


def _needs(graph: CodeGraph) -> str:
    kinds = {task.task for task in graph.order}
    more = [package for kind, package in (("load_images", "Pillow"), ("load_sklearn", "scikit-learn")) if kind in kinds]
    return " and ".join([_NEEDS[graph.script.framework], *more])


def _arguments(writer: Writer) -> ast.stmt:
    parser = call(
        "argparse.ArgumentParser", description=literal(f"The script {writer.generator.name}."),
        formatter_class=attribute(name("argparse"), "ArgumentDefaultsHelpFormatter"),
    )  # fmt: skip
    body: list[ast.stmt] = [assign("parser", parser)]
    for argument in writer.arguments.values():
        given = {"type": name(argument.type), "default": argument.default, "help": literal(argument.help)}
        body.append(ast.Expr(call("parser.add_argument", literal(argument.flag), **given)))
    return define("arguments", [], [*body, *quoted("return parser.parse_args()")], "Read the command line.")
