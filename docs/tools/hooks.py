"""Hooks of MkDocs: pages from files outside of docs/, links to them, help of commands.

Pages link to files of the repository as they would anywhere: ``../benchmarks/results/x.json``, ``../CHANGELOG.md``. In
the site these files have places of their own: Markdown and source are pages, the rest are files. So each link can be
followed in the repository and in the site, and MkDocs checks it in both.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from texts import help_text

__all__ = ["on_config", "on_files", "on_page_content", "on_page_markdown"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"

# Files that have another name in the site.
PLACES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "examples/README.md")
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", "": "text", ".txt": "text"}

_LINK = re.compile(r"(\]\()([^()\s#]+)(#[^()\s]*)?(\))")
_FENCE = re.compile(r"(?ms)^( *)(```+).*?^\1\2 *$\n?|`[^`\n]+`")
_HELP = re.compile(r"(?m)^<!-- help: (.+?) -->$")

_origins: dict[str, str] = {}  # file of the repository by its page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts all decisions and examples into the navigation."""
    decisions = sorted(path.name for path in (ROOT / "docs/decisions").glob("[0-9]*.md"))
    _replace(config.nav, "decisions/", ["decisions/README.md", *(f"decisions/{name}" for name in decisions)])
    examples = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
    _replace(config.nav, "examples/", ["examples/README.md", *(f"examples/{name}/README.md" for name in examples)])
    return config


def _replace(items: Any, wanted: str, by: list[str]) -> None:
    """Puts a list into the place of one entry."""
    for item in items if isinstance(items, list) else []:
        for title, value in item.items() if isinstance(item, dict) else ():
            if value == wanted:
                item[title] = by
            _replace(value, wanted, by)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what pages link to outside of docs/, and what that links to."""
    _origins.clear()
    waiting = list(ALWAYS)
    for file in files.documentation_pages():
        waiting += _links(f"{DOCS}{file.src_uri}", file.content_string)
    while waiting:
        origin = waiting.pop()
        path = ROOT / origin
        place = place_of(origin)
        if origin.startswith(DOCS) or origin == "README.md" or not path.is_file() or place in _origins:
            continue
        _origins[place] = origin
        text = path.read_text("utf-8")
        if origin.endswith(".md"):
            waiting += _links(origin, text)
        elif place.endswith(".md"):
            text = _as_page(origin, text)
        files.append(File.generated(config, place, content=text))
    return files


def place_of(origin: str) -> str:
    """The place in the site of a file of the repository."""
    if origin.startswith(DOCS):
        return origin.removeprefix(DOCS)
    if origin in PLACES:
        return PLACES[origin]
    suffix = posixpath.splitext(origin)[1]
    return f"{origin}.md" if suffix in LANGUAGES else origin


def _as_page(origin: str, text: str) -> str:
    language = LANGUAGES[posixpath.splitext(origin)[1]]
    return f"---\nsearch:\n  exclude: true\n---\n# {origin}\n\n````{language}\n{text}````\n"


def _links(origin: str, text: str) -> Iterator[str]:
    """Files of the repository that a page links to."""
    for _, target, _, _ in _LINK.findall(_FENCE.sub("", text)):
        if ":" not in target:
            yield _resolve(origin, target)


def _resolve(origin: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets links lead to the places that files have in the site, and fills in what is generated."""
    place = page.file.src_uri
    origin = _origins.get(place, f"{DOCS}{place}")
    if origin.endswith(".md"):
        markdown = _outside_code(markdown, lambda text: _LINK.sub(lambda found: _moved(found, origin, place), text))
    return _HELP.sub(lambda found: help_text(found[1]), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings have two colons before a block of code, of which one is meant to be seen."""
    return html.replace("::</p>", ":</p>")


def _moved(found: re.Match[str], origin: str, place: str) -> str:
    opening, target, anchor, closing = found.groups()
    leads_to = _resolve(origin, target)
    if ":" in target or (origin.startswith(DOCS) and leads_to.startswith(DOCS)):
        return found[0]
    new = posixpath.relpath(place_of(leads_to), posixpath.dirname(place) or ".")
    return f"{opening}{new}{anchor or ''}{closing}"


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Changes text, and leaves code as it is."""
    parts, end = [], 0
    for code in _FENCE.finditer(markdown):
        parts += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(markdown[end:])])
