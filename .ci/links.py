"""Raise for a link within a built site that leads nowhere: python .ci/links.py FOLDER.

Links to other sites are not followed, nor those of pages of source code, which Sphinx also writes to
names that the reference leaves out.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["broken"]


class Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag in ("a", "link", "img", "script"):
            self.targets += [value for name in ("href", "src") if (value := given.get(name))]


def broken(site: Path) -> list[str]:
    """Each link to a file or an anchor that the site lacks, as "PAGE: LINK"."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    out = []
    for path, page in pages.items():
        if "_modules" in path.parts:
            continue
        for target in page.targets:
            link = urlsplit(target)
            if link.scheme or link.netloc or target.startswith("data:"):
                continue
            file = (path.parent / unquote(link.path)).resolve() if link.path else path
            file = file / "index.html" if file.is_dir() else file
            anchors = pages[file].anchors if file in pages else set()
            found = file.exists() and (not link.fragment or unquote(link.fragment) in anchors)
            if not found:
                out.append(f"{path.relative_to(site.resolve())}: {target}")
    return out


if __name__ == "__main__":
    lost = broken(Path(sys.argv[1]))
    print("\n".join(lost) or "every link within the site leads somewhere")
    sys.exit(bool(lost))
