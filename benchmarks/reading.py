"""How much there is to read in the source, and how its functions are named, beside other libraries.

Lines flatter dense code, so tokens are counted: those of ``tokenize`` without comments,
docstrings, ends of lines and indentation.  A name whose first word is a past participle
(``kept``, ``told``) hides whether something happens; one whose first word is a verb says so.
Properties and special methods are not counted among the functions, and tests are left out.

scikit-learn and Optuna, as they are installed, are measured the same way.  Run ``python
benchmarks/reading.py`` (under 60 s; ``--quick`` is the same).
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path

from _table import EPYC, report

import nnpipe

OTHERS = {"scikit-learn": "sklearn", "Optuna": "optuna"}
IRREGULAR = set(
    "given made known done told said taken held left met kept begun chosen drawn found gone laid "
    "led lent lost meant paid seen sent shown sold spent stood thought understood won written "
    "built bound brought bought caught dealt fed felt fought forgotten frozen got grown heard "
    "hidden lit risen shaken spoken stolen stuck struck taught thrown torn worn".split()
)
NO_PARTICIPLES = set(
    "need seed feed speed indeed embed red bed shed bleed exceed succeed proceed reseed".split()
)
VERBS = set(
    "get set make read write add remove check is has can should load save open close run call "
    "start stop build create compute convert parse format find select choose validate register "
    "update delete copy merge split join infer export import compile train evaluate measure print "
    "log show render draw plot to from as with on handle visit apply assert test wait send "
    "receive connect listen prepare init setup reset clear flush iter next fit predict transform "
    "score sample suggest tell ask report download upload extract resolve list fetch put pop push "
    "insert append extend sort filter map reduce count size describe encode decode serialize "
    "deserialize dump pack unpack release acquire enter exit raise warn ensure verify compare "
    "match replace rename move normalize reshape broadcast concat slice index lookup search "
    "iterate generate yield process execute submit cancel resume finish begin end patch wrap "
    "unwrap attach detach bind freeze fold trace dispatch emit consume allocate reserve quantize "
    "remeasure rank suppress preserve require lock try record diagnose explain minimize".split()
)
LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
GOALS = {
    "tokens": 1_050_000,
    "tokens_a_line": 8.5,
    "participles": 0.025,
    "verbs": 0.5,
    "files": 950,
    "longest": 600,
    "fmt_skip": 30,
}
LEAST = {"verbs"}


@dataclass
class Figures:
    """The figures of one source tree; shares are from 0 to 1."""

    tokens: int = 0
    code_lines: int = 0
    functions: int = 0
    participles: float = 0
    verbs: float = 0
    files: int = 0
    longest: int = 0
    fmt_skip: int = 0
    comments: int = 0

    @property
    def tokens_a_line(self) -> float:
        """The tokens of a line that has any."""
        return self.tokens / max(self.code_lines, 1)


def is_participle(word: str) -> bool:
    """Return whether a word is a past participle."""
    regular = word.endswith("ed") and len(word) > 3 and word not in NO_PARTICIPLES
    return word in IRREGULAR or regular


def first_words(tree: ast.AST) -> Iterator[str]:
    """Yield the first word of the name of each function that is no property."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            special = node.name.startswith("__")
            if not special and not any(
                "property" in mark or mark.endswith((".setter", ".getter")) for mark in marks
            ):
                yield node.name.strip("_").split("_")[0]


def measure_file(path: Path, figures: Figures) -> None:
    """Add a file to the figures; shares are numbers of functions until all are added."""
    text = path.read_text("utf-8", "replace")
    lines = text.splitlines()
    figures.files += 1
    figures.longest = max(figures.longest, len(lines))
    figures.fmt_skip += text.count("# fmt: skip")
    figures.comments += sum(line.lstrip().startswith("#") for line in lines)
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        begin = token.string.lstrip("rRbB")[:3]
        if token.type in LAYOUT or (token.type == tokenize.STRING and begin in ('"""', "'''")):
            continue
        figures.tokens += 1
        used.update(range(token.start[0], token.end[0] + 1))
    figures.code_lines += len(used)
    for word in first_words(ast.parse(text)):
        figures.functions += 1
        figures.participles += is_participle(word)
        figures.verbs += word in VERBS


def measure_tree(folder: Path) -> Figures:
    """Return the figures of all Python files in a folder, without tests."""
    figures = Figures()
    for path in sorted(folder.rglob("*.py")):
        if "tests" not in path.relative_to(folder).parts:
            measure_file(path, figures)
    figures.participles /= max(figures.functions, 1)
    figures.verbs /= max(figures.functions, 1)
    return figures


def holds(key: str, value: float) -> bool:
    """Return whether a figure satisfies its goal."""
    return value >= GOALS[key] if key in LEAST else value <= GOALS[key]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the same: it is quick anyway")
    parser.parse_args()
    folders = {"nnpipe": Path(nnpipe.__file__).parent}
    for title, package in OTHERS.items():
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            folders[title] = Path(spec.origin).parent
        else:
            print(f"left out: {title} is not installed")
    measured = {title: measure_tree(folder) for title, folder in folders.items()}
    names = [field.name for field in fields(Figures)]
    rows = [
        {"library": title}
        | {name: round(getattr(each, name), 4) for name in names}
        | {"tokens a line": round(each.tokens_a_line, 2)}
        for title, each in measured.items()
    ]
    own, other = measured["nnpipe"], measured.get("scikit-learn", Figures())
    parts = [
        {
            "name": key,
            "value": round(getattr(own, key), 4),
            "unit": "",
            "reference": round(getattr(other, key), 4),
            "ratio": round(getattr(own, key) / goal, 3),
            "goal": goal,
            "holds": holds(key, getattr(own, key)),
            "seen_on": EPYC,
        }
        for key, goal in GOALS.items()
    ]
    return report(
        rows,
        name="reading",
        value=own.tokens,
        unit="tokens",
        reference=other.tokens,
        ratio=own.tokens / GOALS["tokens"],
        goal=f"at most {GOALS['tokens']:,} tokens, and the parts",
        holds=all(part["holds"] for part in parts),
        parts=parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
