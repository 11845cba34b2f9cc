"""Find what a report would ask the network for: what a browser acts on, not text that it only shows."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from drlnb.report.page import CSP

__all__ = ["Verdict", "verify"]

#: Names of XML languages look like addresses and are never fetched.
_NAMESPACES = ("http://www.w3.org/",)
_ADDRESS = re.compile(r"(?:https?|wss?|ftp):\\?/\\?/[^\s\"'`<>)\\]+", re.IGNORECASE)
_SCHEMELESS = re.compile(r"^\s*//[^/\s]")
_FETCHING = frozenset({"src", "href", "srcset", "action", "poster", "data", "formaction", "xlink:href", "background"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found in a page."""

    #: Every address outside the page that it could ask, in order.
    urls: tuple[str, ...]
    #: Whether the policy that forbids it is there, before any script.
    has_csp: bool

    @property
    def n_external_urls(self) -> int:
        """Number of addresses outside the page."""
        return len(self.urls)

    @property
    def offline(self) -> bool:
        """Whether the page needs nothing but itself."""
        return self.has_csp and not self.urls


class _Reader(HTMLParser):
    """Collects addresses from attributes, scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.urls: list[str] = []
        self.has_csp = False
        self._acting = False
        self._scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "meta" and values.get("http-equiv", "").lower() == "content-security-policy":
            self.has_csp = self.has_csp or (values.get("content") == CSP and not self._scripts)
        if tag == "script":
            self._scripts += 1
        self._acting = tag == "style" or (tag == "script" and values.get("type", "") != "application/json")
        for name, value in values.items():
            if name in _FETCHING and not value.startswith(("data:", "#")):
                self.urls += [value] if _SCHEMELESS.match(value) or not _ADDRESS.match(value) else []
            if not name.startswith("xmlns"):
                self._look(value)

    def handle_endtag(self, tag: str) -> None:
        self._acting = self._acting and tag not in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if self._acting:
            self._look(data)

    def _look(self, text: str) -> None:
        self.urls += [url for url in _ADDRESS.findall(text) if not url.startswith(_NAMESPACES)]


def verify(page: Path | str) -> Verdict:
    """Look through a page.

    Parameters
    ----------
    page
        Path of the file, or its text.
    """
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8") if isinstance(page, Path) else page)
    reader.close()
    return Verdict(urls=tuple(reader.urls), has_csp=reader.has_csp)
