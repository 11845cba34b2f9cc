"""Make the page around the pictures: HTML, style, and a policy that keeps everything from outside out."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from drlnb.report import mount
from drlnb.report.download import Download
from drlnb.views.drawing.payload import Plain
from drlnb.views.drawing.view import View, table_html

__all__ = ["CSP", "Section", "facts_table", "journal_part", "page", "pairs_table", "paragraphs"]

#: Nothing may be loaded, sent or framed; scripts and styles are those in the page, pictures are data.
CSP = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1f2328;--dim:#59636e;--line:#d1d9e0}
@media (prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e6edf3;--dim:#9aa7b4;--line:#3a434d}}
:root[data-theme=light]{color-scheme:light;--bg:#fff;--fg:#1f2328;--dim:#59636e;--line:#d1d9e0;
--jp-layout-color1:#fff;--jp-ui-font-color1:#1f2328;--jp-ui-font-color2:#59636e;--jp-border-color2:#d1d9e0;
--jp-layout-color2:#f3f5f7;--jp-brand-color1:#0b63c5;--jp-error-color1:#b3261e}
:root[data-theme=dark]{color-scheme:dark;--bg:#14181d;--fg:#e6edf3;--dim:#9aa7b4;--line:#3a434d;
--jp-layout-color1:#14181d;--jp-ui-font-color1:#e6edf3;--jp-ui-font-color2:#9aa7b4;--jp-border-color2:#3a434d;
--jp-layout-color2:#1d232a;--jp-brand-color1:#6cb2ff;--jp-error-color1:#ff8a80}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 20px 60px}h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;
margin:36px 0 4px}
.say{font-weight:600;margin:2px 0}.from{display:inline-block;border:1px solid var(--line);border-radius:10px;
padding:0 8px;margin-left:8px;font-size:12px;font-weight:400;color:var(--dim)}
.dim,figcaption,.note{color:var(--dim);font-size:13px;margin:2px 0}figure{margin:8px 0}figure svg,figure img{
max-width:100%;height:auto}
.wide{overflow-x:auto}.wide table{border-collapse:collapse;font-size:13px}.wide th[scope=row]{font-weight:400;
color:var(--dim)}summary{cursor:pointer;font-size:13px;padding:6px 0}.wide :is(th,td){padding:3px 12px 3px 0;
text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
header{display:flex;flex-wrap:wrap;gap:8px;align-items:start;justify-content:space-between}#theme{font:inherit;
font-size:13px;color:inherit;background:none;border:1px solid var(--line);border-radius:4px;padding:4px 10px;
min-height:32px;cursor:pointer}
.drlnb-print{max-width:100%;height:auto}a{color:inherit}
@media print{#theme,.drlnb :not([data-testid=legend],th)>button{display:none}
.drlnb :is(.drlnb-box,.drlnb-scroll){overflow:visible;
max-height:none}main{max-width:none;padding:0}section{break-inside:avoid}@page{
size:A4;margin:14mm}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a report."""

    #: Letters and dashes; the section's address in the page.
    name: str
    heading: str
    view: View | None = None
    #: HTML of our own making, with every text escaped.
    body: str = ""


def paragraphs(text: str) -> str:
    """Return what a user wrote, apart by empty lines, as HTML; every text is escaped."""
    return "".join(f"<p>{html.escape(part.strip())}</p>" for part in re.split(r"\n\s*\n", text) if part.strip())


def pairs_table(rows: Sequence[Plain]) -> str:
    """Return mappings as an HTML table with their keys as head; every text is escaped."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f'<th scope="col">{html.escape(key)}</th>' for key in keys)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(row.get(key, '')))}</td>" for key in keys) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def facts_table(facts: Plain) -> str:
    """Return names and values as an HTML table; every text is escaped."""
    body = "".join(
        f'<tr><th scope="row">{html.escape(key)}</th><td>{html.escape(str(value))}</td></tr>'
        for key, value in facts.items()
    )
    return f'<div class="wide"><table>{body}</table></div>'


def journal_part(download: Download) -> str:
    """Return the link that saves the journal, or the words that say why there is none."""
    if not download.data:
        return (
            f'<p class="dim" data-testid="journal">The journal has {download.n_rows:,} rows: too many for a page to '
            "take along. It lies in the folder <code>journal</code> of the run.</p>"
        )
    href = f"data:application/gzip;base64,{base64.b64encode(download.data).decode()}"
    return (
        f'<p><a download="journal.tar.gz" data-testid="journal" href="{href}">Save the journal</a> '
        f'<span class="dim">({len(download.data):,} bytes): all {download.n_rows:,} rows of this run, '
        "machines by number. Unpacked, <code>drlnb report</code> reads it.</span></p>"
    )


def _section(section: Section) -> str:
    parts = [
        f'<section id="{section.name}" data-testid="section-{section.name}"><h2>{html.escape(section.heading)}</h2>'
    ]
    parts.append(section.body)
    view = section.view
    if view is not None:
        place = f"view-{section.name}"
        parts.append(
            f'<p class="say" data-testid="sentence-{section.name}">{html.escape(view.sentence)}'
            f'<span class="from" data-testid="origin-{section.name}">{html.escape(view.origin)}</span></p>'
            f'<figure><div id="{place}"></div><noscript>{"" if view.module == "table" else view.svg()}'
            f'<div class="wide">{table_html(view.table, view.rows(20))}</div></noscript></figure>'
        )
        parts += [f'<p class="note">{html.escape(note)}</p>' for note in view.notes]
        parts.append(mount.data_block(place, view))
    return "".join([*parts, "</section>"])


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the whole page.

    Parameters
    ----------
    title, subtitle
        Plain text.
    sections
        In order.
    """
    script = mount.script([section.view for section in sections if section.view is not None])
    body = "\n".join(_section(section) for section in sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CSP}">\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n'
        f'<body><main><header><div><h1>{html.escape(title)}</h1><p class="dim">{html.escape(subtitle)}</p></div>'
        f'<button id="theme" type="button" data-testid="theme">Theme</button></header>\n{body}</main>\n'
        f"{script}</body></html>\n"
    )
