"""Generated pages of the documentation: flows, command line, Python, spec and measures; and drawings.

mkdocs calls the functions `on_...` (`hooks` in mkdocs.yml). The line `<!-- drawing: name -->` of a page becomes a drawing
of `DRAWINGS`.
"""

from __future__ import annotations

import ast
import html
import inspect
import itertools
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from mkdocs.structure.files import File

import agentlab
from agentlab import notebook
from agentlab.cli.options import COMMANDS
from agentlab.cli.parser import make_parser
from agentlab.core import plugins
from agentlab.workbench.settings import settings_of, spec_schema

HERE = Path(__file__).parent
STEP = re.compile(r"(?P<phase>\w+)(?P<marks>[*?~]*): (?P<text>.+)")
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:agentlab|datasets|results)/[^)#]+|CONTRIBUTING\.md)(?:#[^)]*)?\)")
"""A link to a file of the repository that is no page of the site."""
WORKER = "https://unpkg.com/iframe-worker/shim"
MARKS = {"*": "as often as needed", "?": "not in every turn", "~": "after the reply"}
CHAPTERS = {
    "Run flows": ("Lab", "Chat", "load_spec", "Scripted"),
    "Read, grade and continue a run": (
        *("open_run", "Run", "score", "judge", "fork", "import_predictions", "reproduce"),
    ),
    "Compare and gate": (
        *("compare", "Comparison", "evaluate_claims", "ClaimResult", "write_baseline", "gate", "GateVerdict"),
    ),
    "Other prices and speeds": ("Repricing", "CacheRules", "load_prices"),
    "Data sets": (
        *("load_dataset", "Dataset", "add_conversation", "Conversation", "Turn", "load_documents", "Document", "lint"),
    ),
    "Write a flow": ("Session", "UserTurn", "Reply", "Message", "Passage", "Fact", "cite", "Citation"),
    "Write a tool or a model": ("tool", "Tool", "ToolSpec", "ToolCall", "Request", "Completion", "Usage"),
    "Errors": ("AgentlabError", "ConfigError", "DatasetError", "ModelError", "RunError", "ToolError"),
}
"""Public names by chapter of the Python page."""
DRAWINGS = {
    "run": (
        ("data set", "conversations, documents, expectations"),
        ("flow", "answers a turn by the verbs of its session"),
        ("session", "model, search, tools, memory: each verb one event"),
        ("trace", "the events of a conversation, in a ledger"),
        ("scores", "graders read the rows; a flow never grades itself"),
        ("verdict", "differences with intervals; a gate for CI"),
    ),
    "recording": (
        ("request", "messages, tools, model, settings, seed"),
        ("key", "a hash of exactly what reaches the provider"),
        ("recorded?", "look the response up, with its recorded seconds"),
        ("not?", "replay names the field that differs; auto calls and records"),
    ),
}


def draw(boxes: list[tuple[str, str, str]]) -> str:
    """Draw boxes from top to bottom with arrows: title, text, and `dashed` for an optional step.

    An arrow leads back from the last to the first of adjacent boxes with `loop`.
    """
    width, height, gap = 700, 46, 22
    parts = []
    for is_loop, group in itertools.groupby(enumerate(boxes), key=lambda entry: "loop" in entry[1][2]):
        numbers = [number for number, _ in group]
        up, down = (4 + number * (height + gap) + height // 2 for number in (numbers[0], numbers[-1]))
        if is_loop:
            parts.append(
                f'<path class="loop" d="M{width - 4} {down + 12} h22 V{up - 12} h-18 m6 -5 l-6 5 l6 5" fill="none"'
                f' stroke="currentColor"/><text x="{width + 24}" y="{(up + down) // 2 + 4}">repeat</text>'
            )
    for number, (title, text, style) in enumerate(boxes):
        top = 4 + number * (height + gap)
        dash = ' stroke-dasharray="5 4"' if "dashed" in style else ""
        parts.append(
            f'<rect x="4" y="{top}" width="{width - 8}" height="{height}" rx="6" fill="none" stroke="currentColor"{dash}/>'
            f'<text x="18" y="{top + 28}" font-weight="600">{html.escape(title)}</text>'
            f'<text x="150" y="{top + 28}">{html.escape(text)}</text>'
        )
        if number:
            parts.append(
                f'<path d="M{width // 2} {top - gap} v{gap - 6} m-5 -6 l5 6 l5 -6" fill="none" stroke="currentColor"/>'
            )
    tall = 8 + len(boxes) * (height + gap) - gap
    return (
        f'<svg viewBox="0 0 {width + 80} {tall}" role="img" style="max-width: {width + 80}px; width: 100%" font-size="13"'
        f' font-family="sans-serif" fill="currentColor">{"".join(parts)}</svg>\n'
    )


def drawn_flows() -> dict[str, Any]:
    drawn: dict[str, Any] = yaml.safe_load((HERE / "flows.yaml").read_text(encoding="utf-8"))
    return drawn


def steps_of(flow: str) -> list[tuple[str, str, str]]:
    """Return (phase, marks, text) of each step of a turn."""
    matches = [STEP.fullmatch(step) for step in drawn_flows()[flow]["steps"]]
    return [(step["phase"], step["marks"], step["text"]) for step in matches if step is not None]


def flow_page(flow: str) -> str:
    drawn = drawn_flows()[flow]
    boxes = []
    for phase, marks, text in steps_of(flow):
        note = ", ".join(MARKS[mark] for mark in marks)
        style = ("dashed " if "?" in marks or "~" in marks else "") + ("loop" if "*" in marks else "")
        boxes.append((phase, f"{text}{f' ({note})' if note else ''}", style))
    module = plugins.resolve("flows", flow)
    expected = getattr(module, "CALLS_PER_TURN", None)
    lines = [
        f"# {flow}",
        "",
        plugins.names("flows")[flow],
        "",
        draw(boxes),
        "",
        "## What a turn costs",
        "",
        f"    {drawn['cost']}",
        "",
        drawn["why"] + (f" A run is estimated at {expected:g} calls a turn." if expected else ""),
        "",
        "## Settings",
        "",
        f"Keys beside `flow` in a spec: `{{flow: {flow}, ...}}`.",
        "",
        *table(settings_of(flow)),
    ]
    prompts = getattr(module, "PROMPTS", {})
    if prompts:
        lines += ["## Prompts", "", f"`prompts: {{{flow}: {{name: text}}}}` in a spec replaces one: ", ""]
        lines += [", ".join(f"`{name}`" for name in prompts), ""]
    return "\n".join(lines)


def table(properties: dict[str, Any]) -> list[str]:
    if not properties:
        return ["None.", ""]
    rows = ["| key | default | what it does |", "| --- | --- | --- |"]
    for name, schema in properties.items():
        default = f"`{schema['default']}`" if "default" in schema else ""
        rows.append(f"| `{name}` | {cell(default)} | {cell(schema.get('description', ''))} |")
    return [*rows, ""]


def cell(text: object) -> str:
    """Return text for a table cell, without line breaks and tags."""
    return escape(" ".join(str(text).split()).replace("|", "\\|"))


def cli_page() -> str:
    lines = ["# Command line", "", "The same as `agentlab COMMAND --help`.", ""]
    for name in COMMANDS:
        command = make_parser(name)
        lines += [f"## agentlab {name}", "", cell(command.description), ""]
        lines += ["| argument | meaning |", "| --- | --- |"]
        for action in command._actions:
            flags = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            if action.option_strings and action.nargs != 0:
                flags += f" {action.metavar or '|'.join(map(str, action.choices or ['VALUE']))}"
            lines.append(f"| `{flags.replace('|', '/')}` | {cell(action.help or '')} |")
        lines += ["", "```text", str(command.epilog or "").strip(), "```", ""]
    return "\n".join(lines)


def spec_page() -> str:
    schema = spec_schema()
    lines = [
        "# Spec",
        "",
        "A spec is one YAML file. An unknown key is an error. `agentlab list schema` prints its JSON schema.",
        "",
    ]
    lines += [
        "The command line overrides the spec, and the spec overrides the environment.",
        "",
        *table(schema["properties"]),
    ]
    for name, title in (("FlowSpec", "An entry of `flows`"), ("RetrievalSpec", "`retrieval`")):
        lines += [f"## {title}", "", *table(schema["$defs"][name]["properties"])]
    for name, title in (("GenerationSpec", "`generation`"), ("BudgetSpec", "`budget`")):
        lines += [f"## {title}", "", *table(schema["$defs"][name]["properties"])]
    return "\n".join(lines)


def measures_page() -> str:
    lines = [
        "# Measures",
        "",
        "`scorers: default` uses every scorer below on the turns whose data it needs. Values lie between 0 and 1, and more",
        "is better. Your own scorer is a file with two functions, or an object: `scorers: [answer, ./mine.py]`.",
        "",
    ]
    for name in plugins.names("evals.scorers"):
        text = str(plugins.resolve("evals.scorers", name).__doc__).strip()
        lines += [f"## {name}", "", escape(text), ""]
    return "\n".join(lines)


def python_page() -> str:
    """List every public name of the package by chapter: signature, docstring, fields, properties, methods and source."""
    lines = [
        "# Python",
        "",
        "`import agentlab as al` gives these names. `from agentlab import notebook` has the widgets: see",
        "[How do I work in a notebook?](../howto/notebook.md)",
        "",
    ]
    chapters = {title: {f"al.{name}": getattr(agentlab, name) for name in names} for title, names in CHAPTERS.items()}
    chapters["In a notebook"] = {f"notebook.{name}": getattr(notebook, name) for name in notebook.__all__}
    for title, values in chapters.items():
        lines += [f"## {title}", "", "| name | what it is |", "| --- | --- |"]
        lines += [f"| [`{name}`](#{name}) | {cell(first_line(value))} |" for name, value in values.items()]
        lines += [""]
        for name, value in values.items():
            lines += public_name(value, name)
    return "\n".join(lines)


def public_name(value: Any, name: str) -> list[str]:
    """Return the section of one public name as Markdown."""
    file = Path(inspect.getsourcefile(inspect.unwrap(value)) or "").relative_to(HERE.parent)
    lines = [f"### {name} {{#{name}}}", "", *described(value, name), f"Source: `{file}`", ""]
    if not inspect.isclass(value) or issubclass(value, Exception):
        return lines
    rows = [f"| `{field}` | {cell(text)} |" for field, text in attributes(value).items()]
    lines += ["| attribute | meaning |", "| --- | --- |", *rows, ""] if rows else []
    for method, function in inspect.getmembers(value, inspect.isfunction):
        if not method.startswith("_") and function.__doc__ and function.__module__.startswith("agentlab."):
            lines += described(function, f"{name.lower().partition('.')[2]}.{method}")
    return lines


def attributes(value: type) -> dict[str, str]:
    """Return the fields and properties of a class that have a docstring, those of its bases included."""
    texts: dict[str, str] = {}
    for kind in reversed([each for each in value.__mro__ if each.__module__.startswith("agentlab.")]):
        body = ast.parse(inspect.getsource(kind)).body[0].body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                texts[field.target.id] = text.value.value
        for name, part in vars(kind).items():
            if isinstance(part, (property, cached_property)) and part.__doc__:
                texts[name] = inspect.cleandoc(part.__doc__)
    return {name: text for name, text in texts.items() if not name.startswith("_")}


def first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0]


class Plain(str):
    """Text that a signature prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature(value: Any) -> str:
    """Return the parameters and the result of a class or function, without `self`; long ones a line each."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return "(message)"
    if getattr(value, "_is_protocol", False):
        return ""
    whole = inspect.signature(value)
    listed: list[str] = []
    for one in whole.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not any(text.startswith("*") for text in listed):
            listed.append("*")
        plain = one.replace(annotation=Plain(one.annotation)) if isinstance(one.annotation, str) else one
        listed.append(re.sub(" = <[^A-Z].*>$", " = ...", str(plain)))
    listed = [re.sub(r"(\w+\.)+(?=[A-Z])", "", text) for text in listed if text != "self"]
    listed = [re.sub(r"Annotated\[(.+), MinLen\(.+?\)\]", r"\1", text) for text in listed]
    returned = whole.return_annotation
    arrow = f" -> {returned}" if isinstance(returned, str) and returned != "None" else ""
    line = f"({', '.join(listed)}){arrow}"
    return line if len(line) < 80 else "(\n" + "".join(f"    {text},\n" for text in listed) + f"){arrow}"


def described(value: Any, name: str) -> list[str]:
    """Return the signature and the docstring of a class or function as Markdown."""
    mark = "await " if inspect.iscoroutinefunction(value) else ""
    return ["```python", f"{mark}{name}{signature(value)}", "```", "", escape(inspect.getdoc(value) or ""), ""]


def escape(text: str) -> str:
    """Escape `<`, but not in code, where Markdown does it."""
    return re.sub("(`[^`]*`)|<", lambda match: match[1] or "&lt;", text)


def on_config(config: Any) -> Any:
    """Add the pages of the flows to the navigation, in the order of `drawn_flows`."""
    for entry in config.nav:
        if "Flows" in entry:
            entry["Flows"] = [{flow: f"flows/{flow}.md"} for flow in drawn_flows()]
    return config


def on_files(files: Any, config: Any) -> Any:
    pages = {f"flows/{flow}.md": flow_page(flow) for flow in drawn_flows()}
    pages |= {"reference/cli.md": cli_page(), "reference/spec.md": spec_page()}
    pages |= {"reference/measures.md": measures_page(), "reference/python.md": python_page()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for picture in (HERE.parent / "results").glob("report*.png"):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """Draw the drawings, and resolve links that leave the folder: the site has the pictures, and only names the rest."""
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(r"\]\((?:\.\./)+results/(report\w*\.png)\)", rf"]({up}pictures/\1)", markdown)
    markdown = re.sub(OUTSIDE, r"\1 (`\2`)", markdown)

    def drawing(match: re.Match[str]) -> str:
        return draw([(title, text, "") for title, text in DRAWINGS[match[1]]])

    return re.sub(r"<!-- drawing: (\w+) -->", drawing, markdown)


def on_post_page(output: str, page: Any, **others: Any) -> str:
    """Load the worker of the search from the site: the theme would load it from the network."""
    return output.replace(WORKER, "../" * page.url.count("/") + "worker.js")


def on_post_template(output: str, template_name: str, **others: Any) -> str:
    return output.replace(WORKER, "/worker.js")
