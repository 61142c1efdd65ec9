"""Pages made from the code when the documentation is built: a page a flow, the command line, the spec; and drawings.

mkdocs calls `on_files` and `on_page_markdown` (`hooks` in mkdocs.yml). In a page, a line `<!-- drawing: name -->` becomes
a drawing of `DRAWINGS`.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.structure.files import File

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
DRAWINGS = {
    "run": (
        ("data set", "conversations, documents, what is expected"),
        ("flow", "answers a turn by the verbs of its session"),
        ("session", "model, search, tools, memory: each verb one event"),
        ("trace", "the events of a conversation, in a ledger"),
        ("scores", "graded from the rows, never by the flow"),
        ("verdict", "differences with intervals; a gate for CI"),
    ),
    "recording": (
        ("request", "messages, tools, model, settings, seed"),
        ("key", "a hash of exactly what reaches the provider"),
        ("recorded?", "then the answer is looked up, at its recorded seconds"),
        ("not?", "replay says which field differs; auto asks and writes it down"),
    ),
}


def draw(boxes: list[tuple[str, str, str]]) -> str:
    """Boxes from top to bottom with arrows between them: title, text, and `dashed` for what need not happen."""
    width, height, gap = 700, 46, 22
    parts = []
    for number, (title, text, style) in enumerate(boxes):
        top = 4 + number * (height + gap)
        dash = ' stroke-dasharray="5 4"' if style == "dashed" else ""
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
        f'<svg viewBox="0 0 {width} {tall}" role="img" style="max-width: {width}px; width: 100%" font-size="13"'
        f' font-family="sans-serif" fill="currentColor">{"".join(parts)}</svg>\n'
    )


def drawn_flows() -> dict[str, Any]:
    drawn: dict[str, Any] = yaml.safe_load((HERE / "flows.yaml").read_text(encoding="utf-8"))
    return drawn


def steps_of(flow: str) -> list[tuple[str, str, str]]:
    """(phase, marks, text) of each step of a turn."""
    found = [STEP.fullmatch(step) for step in drawn_flows()[flow]["steps"]]
    return [(step["phase"], step["marks"], step["text"]) for step in found if step is not None]


def flow_page(flow: str) -> str:
    drawn = drawn_flows()[flow]
    boxes = []
    for phase, marks, text in steps_of(flow):
        note = ", ".join(MARKS[mark] for mark in marks)
        style = "dashed" if "?" in marks or "~" in marks else ""
        boxes.append((phase, f"{text}{f' ({note})' if note else ''}", style))
    found = plugins.resolve("flows", flow)
    expected = getattr(found, "CALLS_PER_TURN", None)
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
    prompts = getattr(found, "PROMPTS", {})
    if prompts:
        lines += ["## Prompts", "", f"`prompts: {{{flow}: {{name: text}}}}` in a spec replaces one: ", ""]
        lines += [", ".join(f"`{name}`" for name in prompts), ""]
    return "\n".join(lines)


def table(properties: dict[str, Any]) -> list[str]:
    if not properties:
        return ["It has none of its own.", ""]
    rows = ["| key | default | what it does |", "| --- | --- | --- |"]
    for name, schema in properties.items():
        default = f"`{schema['default']}`" if "default" in schema else ""
        rows.append(f"| `{name}` | {cell(default)} | {cell(schema.get('description', ''))} |")
    return [*rows, ""]


def cell(text: object) -> str:
    """Text that stands in a table: no line breaks, and no tags of its own."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def cli_page() -> str:
    lines = ["# Command line", "", "Made from the parser; `agentlab COMMAND --help` prints the same.", ""]
    for name in COMMANDS:
        command = make_parser(name)
        lines += [f"## agentlab {name}", "", cell(command.description), ""]
        lines += ["| argument | meaning |", "| --- | --- |"]
        for action in command._actions:
            shown = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            if action.option_strings and action.nargs != 0:
                shown += f" {action.metavar or '|'.join(map(str, action.choices or ['VALUE']))}"
            lines.append(f"| `{shown.replace('|', '/')}` | {cell(action.help or '')} |")
        lines += ["", "```text", str(command.epilog or "").strip(), "```", ""]
    return "\n".join(lines)


def spec_page() -> str:
    schema = spec_schema()
    lines = [
        "# Spec",
        "",
        "One YAML file, strict: an unknown key is an error. Made from the code (`agentlab list schema`).",
        "",
    ]
    lines += ["The command line wins over the spec, the spec over the environment.", "", *table(schema["properties"])]
    for name, title in (("FlowSpec", "An entry of `flows`"), ("RetrievalSpec", "`retrieval`")):
        lines += [f"## {title}", "", *table(schema["$defs"][name]["properties"])]
    for name, title in (("GenerationSpec", "`generation`"), ("BudgetSpec", "`budget`")):
        lines += [f"## {title}", "", *table(schema["$defs"][name]["properties"])]
    return "\n".join(lines)


def measures_page() -> str:
    """What each scorer says of itself."""
    lines = [
        "# Measures",
        "",
        "A scorer a section, in its own words; every scorer is in `scorers: default`, and grades the turns whose data it",
        "needs. Values lie between 0 and 1, and more is better. A scorer of your own is a file with two functions, or an",
        "object: `scorers: [answer, ./mine.py]`.",
        "",
    ]
    for name in plugins.names("evals.scorers"):
        told = str(plugins.resolve("evals.scorers", name).__doc__).strip()
        lines += [f"## {name}", "", told.replace("<", "&lt;"), ""]
    return "\n".join(lines)


def on_config(config: Any) -> Any:
    """The pages of the flows, each by its name, in the order of the table of `drawn_flows`."""
    for entry in config.nav:
        if "Flows" in entry:
            entry["Flows"] = [{flow: f"flows/{flow}.md"} for flow in drawn_flows()]
    return config


def on_files(files: Any, config: Any) -> Any:
    pages = {f"flows/{flow}.md": flow_page(flow) for flow in drawn_flows()}
    pages |= {"reference/cli.md": cli_page(), "reference/spec.md": spec_page()}
    pages["reference/measures.md"] = measures_page()
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

    def drawing(found: re.Match[str]) -> str:
        return draw([(title, text, "") for title, text in DRAWINGS[found[1]]])

    return re.sub(r"<!-- drawing: (\w+) -->", drawing, markdown)


def on_post_page(output: str, page: Any, **others: Any) -> str:
    """Load the worker of the search from the site: the theme would load it from the network."""
    return output.replace(WORKER, "../" * page.url.count("/") + "worker.js")


def on_post_template(output: str, template_name: str, **others: Any) -> str:
    return output.replace(WORKER, "/worker.js")
