"""Pages that lie elsewhere in the repository, and names that lead to the reference."""

import json
import posixpath
import re
from pathlib import Path
from xml.etree import ElementTree

from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
NAMED = re.compile(r"^::: bj\.(\S+)$", re.M)
PUBLIC = re.compile(r"(?:bj|budgetjax)\.([\w.]+?)(?:\.init|\.step)?(?![\w.])")
CLASS = re.compile(r"([A-Z]\w+)(?![\w.])")
# The path of a class by its name alone, in the reference.
CLASSES = {
    path.split(".")[-1]: path
    for page in (ROOT / ".docs/pages/reference").glob("*.md")
    for path in NAMED.findall(page.read_text("utf-8"))
}
SCRIPT = """---
search: {{exclude: true}}
hide: [navigation, toc]
---

# {name}

````python
{code}````
"""


def on_config(config):
    """Links names to the reference."""
    config.markdown_extensions.append(Names())
    if config.extra["repository"]:
        # As `repo_url` it would have every reader's browser ask GitHub for numbers.
        link = {"icon": "fontawesome/brands/github", "link": config.extra["repository"]}
        config.extra["social"] = [{**link, "name": "The repository"}]
    return config


def on_files(files, config):
    """Adds the pages of the navigation that lie in the repository, and what they link.

    A script becomes a page, and its links are mended to it in `on_page_markdown`.
    """
    for path in _paths(config.nav):
        _add(files, path, config)
    linked = {
        posixpath.normpath(posixpath.join(page.src_uri, "..", link))
        for page in files.documentation_pages()
        for link in LINK.findall(Path(page.abs_src_path).read_text("utf-8"))
    }
    for path in sorted(linked):
        _add(files, path, config)
    return files


def _add(files, path, config):
    if files.get_file_from_path(path) or not (ROOT / path).is_file():
        return
    if path.endswith(".py"):
        shown = SCRIPT.format(
            name=Path(path).name, code=(ROOT / path).read_text("utf-8")
        )
        files.append(File.generated(config, f"{path}.md", content=shown))
        return
    file = File(path, str(ROOT), config.site_dir, config.use_directory_urls)
    # Hosts leave hidden folders out.
    file.dest_uri = file.dest_uri.removeprefix(".github/")
    files.append(file)


def _paths(nav):
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from _paths(value) if isinstance(value, list) else [value]


def on_page_markdown(markdown, page, **_):
    """Names in the reference are written as users write them."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    if page.file.src_uri.startswith(("reference/", "examples/")):
        page.meta["search"] = {"boost": 2}
    markdown = LINK.sub(
        lambda link: link[1] + ".md" * link[1].endswith(".py"), markdown
    )
    options = page.meta.get("options", {})
    return NAMED.sub(lambda name: _described(name[1], options), markdown)


def _described(name, options):
    label = name.split(".")[-1]
    options = {"heading": f"bj.{name}", "toc_label": label, **options}
    return f"::: budgetjax.{name}\n    options: {json.dumps(options)}"


class Names(Extension):
    """Names such as `bj.refit` in the text lead to the reference."""

    def extendMarkdown(self, md):
        md.treeprocessors.register(_Names(md), "names", 5)


class _Names(Treeprocessor):
    def run(self, root):
        for parent in root.iter():
            if parent.tag in ("a", "pre", "autoref", *(f"h{i}" for i in range(1, 7))):
                continue
            for i, child in enumerate(parent):
                path = _path(child.text or "") if child.tag == "code" else None
                if path:
                    parent[i] = _reference(child, f"budgetjax.{path}")


def _path(code):
    """What a piece of code begins with, if it may be in the reference."""
    public, by_name = PUBLIC.match(code), CLASS.match(code)
    return public[1] if public else by_name and CLASSES.get(by_name[1])


def _reference(code, identifier):
    link = ElementTree.Element("autoref", identifier=identifier, optional="")
    link.tail, code.tail = code.tail, None
    link.append(code)
    return link
