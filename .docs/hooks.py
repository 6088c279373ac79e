"""Pages that lie elsewhere in the repository, and formulas that need no script."""

import html
import json
import posixpath
import re
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import latex2mathml.converter
from fontTools import subset
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File
from reference import NAMED, PAGES, ROOT, write_out

LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[([](.+?)\\[)\]]</\1>', re.S)
PUBLIC = re.compile(r"(?:bj|budgetjax)\.([\w.]+?)(?:\.init|\.step)?(?![\w.])")
CLASS = re.compile(r"([A-Z]\w+)(?![\w.])")
# The path of a class by its name alone, in the reference; of two the first.
CLASSES = {
    path.split(".")[-1]: path
    for page in reversed(PAGES.values())
    for path in NAMED.findall(write_out(page))
}
# What is returned, where it has no type.
DASH = re.compile(r'(?<=<li class="doc-section-item field-body">)\s*\N{EN DASH}')
HEADING = re.compile(r"(?<=doc-heading\">)[^<]+")
NUMBERS = re.compile(r"<td(?=[^>]*>\d[^<]{0,24}</td>)")
SCRIPT = """---
search: {{exclude: true}}
hide: [navigation, toc]
---

# {name}

````python
{code}````
"""
FONT = Path(find_spec("ziamath").origin).with_name("fonts") / "STIXTwoMath-Regular.ttf"
# ASCII, Greek, punctuation, operators, and the slanted letters of formulas.
IN_FORMULAS = (
    *range(0x20, 0x7F),
    *range(0x370, 0x400),
    *range(0x2000, 0x2300),
    *range(0x1D434, 0x1D468),
    *range(0x1D6FC, 0x1D716),
)


def on_config(config):
    """Writes out the patterns of the navigation, and links names to the reference."""
    config.nav = [_written_out(entry) for entry in config.nav]
    config.markdown_extensions.append(Names())
    if config.extra["repository"]:
        # As `repo_url` it would have every reader's browser ask GitHub for numbers.
        link = {"icon": "fontawesome/brands/github", "link": config.extra["repository"]}
        config.extra["social"] = [{**link, "name": "The repository"}]
    return config


def _written_out(entry):
    if not isinstance(entry, dict):
        return entry
    ((title, value),) = entry.items()
    if isinstance(value, list):
        return {title: [_written_out(one) for one in value]}
    if "*" not in value:
        return entry
    pages = (page.relative_to(ROOT).as_posix() for page in ROOT.glob(value))
    return {
        title: sorted(pages, key=lambda page: (not page.endswith("README.md"), page))
    }


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
        page.meta["hide"] = ["navigation"]
    if page.file.src_uri.startswith(("reference/", "examples/")):
        page.meta["search"] = {"boost": 2}
    markdown = LINK.sub(
        lambda link: link[1] + ".md" * link[1].endswith(".py"), markdown
    )
    options = page.meta.get("options", {})
    return NAMED.sub(lambda name: _described(name[1], options), write_out(markdown))


def _described(name, options):
    label = name.split(".")[-1]
    options = {"heading": f"bj.{name}", "toc_label": label, **options}
    return f"::: budgetjax.{name}\n    options: {json.dumps(options)}"


def on_page_content(content, **_):
    """Formulas become MathML; long names break at dots; numbers in a table do not."""
    content = HEADING.sub(lambda name: name[0].replace(".", ".<wbr>"), content)
    content = DASH.sub("", content)
    content = NUMBERS.sub('<td class="numbers"', content)
    return FORMULA.sub(
        lambda found: latex2mathml.converter.convert(
            html.unescape(found[2]), display="block" if found[1] == "div" else "inline"
        ),
        content,
    )


def on_post_build(config):
    """The font of formulas, of which only the letters that they need."""
    options = subset.Options(flavor="woff", layout_features=["ssty"])
    font = subset.load_font(FONT, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=IN_FORMULAS)
    subsetter.subset(font)
    subset.save_font(font, Path(config.site_dir) / "assets/formulas.woff", options)


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
