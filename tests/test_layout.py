"""The shape of the project: rooms, one direction of imports, small files, plug-ins with a verb and a first line."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentlab.core import plugins

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "agentlab"
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in FILES}

FLOORS = [
    {"core"},
    {"session", "wire", "data"},
    {"knowledge", "models", "memory", "tools"},
    {"flows"},
    {"workbench"},
    {"evals"},
    {"lab"},
    {"notebook", "cli"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
FLOORS_OF_EVALS = {
    "stats": set(),
    "scorers": set(),
    "store": {"stats"},
    "grade": {"scorers", "store"},
    "play": {"store", "grade"},
    "compare": {"stats", "scorers", "store"},
    "cost": {"store"},
    "judge": {"stats", "store"},
    "report": {"stats", "store", "compare"},
    "published": {"scorers", "store", "grade", "compare"},
}
"""Floors that each floor may import: all arrows point to the disk; play and compare are independent."""
MAX_LINES_OF_CODE = 300
MAX_FUNCTION_LINES = 60
MAX_ATTRIBUTES = 12
SETTINGS = {"CoordinatorSettings", "EgoSettings", "TwoStepSettings"}
RECORDS = {"Turn", "Prediction", "TurnRow", "FlowSummary", "Spec", "Event", *SETTINGS}
"""Rows, settings and the spec, whose number of fields has no bound."""
LINES_OF_A_ROOM = {
    "core": 1_620,
    "session": 670,
    "wire": 980,
    "data": 640,
    "knowledge": 390,
    "models": 1_760,
    "memory": 960,
    "tools": 1_400,
    "flows": 1_925,
    "workbench": 760,
    "evals": 8_250,
    "lab": 630,
    "notebook": 770,
    "cli": 1_650,
    "top": 68,
}
"""Lines of code that each room is planned to have, without docstrings, comments and blanks: 22,473 in all."""
LINES_BEYOND_THE_PLAN = {
    "longer names": 24,
    "servers": 1_406,
    "headline": 310,
    "own data": 1_596,
    "look": 121,
    "graders": 960,
    "lived with": 408,
}
"""Lines of code that a body of work may bring beyond the plan of the rooms; each is its number of today."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module of ours that a file names in an import, inside functions, for the type checker, and by a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole way"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in MODULES or node.module in MODULES:
                    yield whole if whole in MODULES else str(node.module)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__") and node.args[0].value in MODULES:
                yield node.args[0].value


IMPORTS = {name: set(imported(ast.parse(file.read_text()))) for name, file in MODULES.items()}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def lines_of_code(source: str) -> set[int]:
    """Numbers of the lines that are neither blank nor comment nor part of a docstring."""
    lines: set[int] = set()
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in layout:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def attributes(kind: ast.ClassDef) -> set[str]:
    """The fields that a class declares, and what its `__init__` sets."""
    results = {
        part.target.id for part in kind.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    for begin in (part for part in kind.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"):
        for node in ast.walk(begin):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                results |= {node.attr} if isinstance(node.value, ast.Name) and node.value.id == "self" else set()
    return results


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [file for line in listed.splitlines() if (file := ROOT / line).is_file()]


PYTHON = [file for file in tracked() if file.suffix == ".py"]


@pytest.mark.parametrize(
    "init",
    [file for file in FILES if file.name == "__init__.py" and ast.get_docstring(ast.parse(file.read_text()))],
    ids=lambda file: str(file.parent.relative_to(ROOT)),
)
def test_a_package_names_its_files(init):
    """A reader finds the file of a change by the tree and the first docstrings alone."""
    text = init.read_text()
    names = {file.stem for file in init.parent.glob("*.py")} - {"__init__", "__main__"}
    assert not {name for name in names if not re.search(rf"\b{name}\b", text)}


def test_the_top_level_of_the_package_is_rooms():
    results = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert results == {"__init__.py", "__init__.pyi", "__main__.py", *LEVEL}
    assert len(LEVEL) <= 18
    assert not [str(file) for file in FILES if file.name.startswith("_") and not file.name.startswith("__")]


@pytest.mark.parametrize("room", sorted(LEVEL))
def test_room_has_a_docstring_and_imports_only_lower_rooms(room):
    assert len(ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or "") > 80
    for module, used in IMPORTS.items():
        if room_of(module) == room:
            for other in used:
                lower = room_of(other) == room or LEVEL.get(room_of(other), -1) < LEVEL[room]
                assert lower, f"{module} must not import {other}"


@pytest.mark.parametrize("floor", FLOORS_OF_EVALS)
def test_floor_of_evals_imports_only_lower_floors(floor):
    for module, used in IMPORTS.items():
        if module.split(".")[1:3] == ["evals", floor]:
            for other in used:
                if room_of(other) == "evals" and other.count(".") > 1:
                    assert other.split(".")[2] in {floor, *FLOORS_OF_EVALS[floor]}, f"{module} must not import {other}"


def test_every_file_of_evals_is_on_a_floor():
    assert {module.split(".")[2] for module in MODULES if module.startswith("agentlab.evals.")} == {*FLOORS_OF_EVALS}


def test_no_import_goes_in_a_circle():
    done: set[str] = set()

    def follow(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"a circle: {' -> '.join([*way, module])}"
        if module not in done:
            for other in IMPORTS[module]:
                # A package's own parts come with it; what counts is that no part goes back to a whole that uses it.
                follow(other, (*way, module))
            done.add(module)

    for module in MODULES:
        follow(module, ())


@pytest.mark.parametrize("file", PYTHON, ids=lambda f: str(f.relative_to(ROOT)))
def test_file_has_a_docstring_and_stays_small(file):
    source = file.read_text(encoding="utf-8")
    if source.strip():
        assert ast.get_docstring(ast.parse(source)), "a file opens by saying what it is"
    assert len(lines_of_code(source)) <= MAX_LINES_OF_CODE, "a file past that is two ideas"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_functions_and_classes_stay_small(file):
    source = file.read_text(encoding="utf-8")
    lines = lines_of_code(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            long = len([line for line in lines if node.lineno <= line <= (node.end_lineno or 0)])
            assert long <= MAX_FUNCTION_LINES, node.name
        if isinstance(node, ast.ClassDef) and node.name not in RECORDS:
            assert len(attributes(node)) <= MAX_ATTRIBUTES, node.name


def test_the_package_stays_small():
    sizes: Counter[str] = Counter()
    for file in FILES:
        room = file.relative_to(PACKAGE).parts[0] if file.parent != PACKAGE else "top"
        sizes[room] += len(lines_of_code(file.read_text(encoding="utf-8")))
    over = {room: f"{sizes[room]} of {LINES_OF_A_ROOM[room]}" for room in sizes if sizes[room] > LINES_OF_A_ROOM[room]}
    bound = sum(LINES_OF_A_ROOM.values()) + sum(LINES_BEYOND_THE_PLAN.values())
    assert sizes.total() <= bound, f"{sizes.total()} of {bound}; over what was planned: {over}"


@pytest.mark.parametrize("room", ["models", "models.embedders", "memory", "flows", "tools", "evals.scorers"])
def test_plug_ins_do_not_import_siblings(room):
    """No plug-in imports a sibling; shared code is in a file that is no plug-in."""
    own = {name: f"agentlab.{room}.{name}" for name in plugins.names(room)}
    for name, module in own.items():
        parts = {part for part in MODULES if part == module or part.startswith(f"{module}.")}
        for part in parts:
            others = {other for other in own.values() if other != module}
            strangers = {used for used in IMPORTS[part] if any(f"{used}.".startswith(f"{o}.") for o in others)}
            assert not strangers, f"{name} imports its sibling {strangers}"


@pytest.mark.parametrize("room", plugins.GROUPS)
def test_every_plug_in_has_a_first_line_and_can_be_resolved(room):
    names = plugins.names(room)
    assert names
    for name, line in names.items():
        assert line.strip()
        assert plugins.resolve(room, name)


def test_no_test_imports_another_or_a_private_name():
    for file in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                location = f"{file.name}:{node.lineno}"
                assert not (node.module or "").split(".")[-1].startswith("test_"), location
                if (node.module or "").startswith("agentlab"):
                    assert not [alias.name for alias in node.names if re.match("_[^_]", alias.name)], location


def test_the_repository_names_no_machine_no_registry_and_no_key():
    forbidden = re.compile(r"/root/|/home/[a-z]+/|pypi\.org|pythonhosted\.org|sk-[A-Za-z0-9]{20,}")
    for file in tracked():
        if file.suffix != ".png" and file.name != Path(__file__).name:
            result = forbidden.search(file.read_text(encoding="utf-8", errors="replace"))
            assert not result, f"{file.relative_to(ROOT)} holds {result.group(0)!r}"


def test_the_folders_of_the_top_level_are_not_packages():
    for folder in ("datasets", "evals", "notebooks", "results"):
        assert not (ROOT / folder / "__init__.py").exists()
