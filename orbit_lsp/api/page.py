"""The server's pages for people: GPUs, jobs, one job, a form to submit a kernel, and the sign-in. Everything in them is escaped."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from orbit_lsp.queue.job_queue import Followed
from orbit_lsp.queue.job_store import StoredJob
from orbit_lsp.queue.request import ACTIONS, GRADES
from orbit_lsp.report.page import STYLE
from orbit_remote.common.plain_text import visible

_STYLE = (
    STYLE
    + """
a { color: var(--s0); } nav { margin-bottom: .6rem; }
form { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .5rem .8rem; align-items: start; max-width: 60rem; }
form.plain { display: inline; } form button, form .hint { grid-column: 2; justify-self: start; }
input, select, textarea, button { font: inherit; color: var(--text); background: var(--soft); border: 1px solid var(--quiet);
  border-radius: 4px; padding: .3rem .5rem; max-width: 100%; }
textarea { font: 13px/1.45 ui-monospace, monospace; width: 100%; min-height: 16rem; resize: vertical; }
.refused { border-left: 3px solid var(--s4); padding-left: .8rem; overflow-wrap: anywhere; }
td:nth-child(3), td:last-child { overflow-wrap: anywhere; }
"""
)
_LIVE = """
const fetchAgain = async () => {
  const answer = await fetch(location.pathname, {headers: {Accept: "text/html"}});
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  if (fresh) document.getElementById("live").replaceChildren(...fresh.childNodes);
};
let last = Promise.resolve();
new EventSource("/page/live").addEventListener("changed", () => { last = last.then(fetchAgain, fetchAgain); });
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_LIVE)}; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    # with `no-referrer` a browser sends its forms with `Origin: null`, which the guard refuses
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
REPORT_HEADERS = HEADERS | {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox; base-uri 'none'; frame-ancestors 'none'"
}
"""Of a report: a page of ours too, which needs no script, no form and nothing from this server."""
FORM = {"name": "kernel.cu", "action": "run", "grade": "author"}
"""What the form shows at first."""


def overview(
    places: Sequence[Mapping[str, object]],
    waiting: int,
    jobs: Sequence[Followed],
    form: Mapping[str, str],
    refusal: str = "",
    leaderboards: Sequence[str] = (),
) -> str:
    rows = [
        (
            _text(place["name"]),
            _text(place["gpu"] or ("none" if place.get("absent") else "not known yet")),
            _text(f"set aside: {place['aside']}")
            if place["aside"]
            else _link(str(place["job"] or "")) or _text(place.get("absent") or "free"),
        )
        for place in places
    ]
    answer = (
        f'<p class="refused" role="alert"><strong>Not submitted:</strong> {_text(refusal)}</p>'
        if refusal
        else ""
    )
    boards = " · ".join(
        f'<a href="/page/leaderboards/{quote(name, safe="")}">{_text(name)}</a>' for name in leaderboards
    )
    body = (
        f"{f'<nav>Leaderboards: {boards}</nav>' if boards else ''}"
        f'<div id="live"><h2>GPUs</h2>{_table(("place", "GPU", "job"), rows)}'
        f"<h2>Jobs</h2><p>{_counted(waiting)}</p>"
        f"{_table(('job', 'state', 'what', 'place', 'submitted (UTC)', 'result'), [_row(each) for each in jobs])}</div>"
        f'<h2 id="submit">Submit a kernel</h2>{answer}{_form([str(place["name"]) for place in places], form)}'
    )
    return _document(
        "orbit-lsp", "Kernels that were submitted to this server, and what became of them", body, live=True
    )


def job(followed: Followed, lines: Sequence[str], *, report: bool) -> str:
    """Show everything that is known about one job."""
    known = followed.job
    path = f"/page/jobs/{escape(known.id)}"
    links = [f'<a href="{path}/report">Report</a>'] if report else []
    links.append(f'<a href="/v1/jobs/{escape(known.id)}">Record (JSON)</a>')
    end = (
        ""
        if known.over
        else f'<form class="plain" method="post" action="{path}/cancel"><button>Cancel</button></form>'
    )
    body = (
        f'<nav><a href="/">All jobs</a></nav><div id="live"><p>{_text(_state(followed))} {end}</p>'
        f'<p>{" · ".join(links)}</p><pre tabindex="0"><code>{escape(chr(10).join(map(visible, lines)))}</code></pre></div>'
    )
    return _document(f"Job {known.id}", _what(known), body, live=not known.over)


def ranking(name: str, lists: Mapping[str, Sequence[Mapping[str, object]]]) -> str:
    """Show the submissions to a leaderboard by place, the fastest first, as in `popcorn.ranking`."""
    header = ("rank", "seconds", "job", "GPU", "grade", "runs", "submitted (UTC)")
    parts = ['<nav><a href="/">All jobs</a></nav><div id="live">']
    for place, entries in lists.items():
        rows = [
            (
                _text(entry["rank"]), _text(f"{entry['submission_score']:.4g}"), _link(str(entry["job"])), _text(entry["gpu"]),
                _text(entry["grade"]), _text(entry["runs"]), _text(entry["submission_time"]),
            )
            for entry in entries
        ]  # fmt: skip
        own = _table(header, rows) if rows else "<p>No submission has a time yet.</p>"
        parts.append(f"<h2>{_text(place)}</h2>{own}")
    lead = "A text that ran several times counts once, with its median. Grade author: deceptive code may succeed."
    return _document(f"Leaderboard {name}", lead, "".join(parts) + "</div>", live=True)


def sign_in(wrong: bool = False) -> str:
    answer = '<p class="refused" role="alert">That is not the token of this server.</p>' if wrong else ""
    body = (
        f'{answer}<form method="post" action="/page/sign-in"><label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required>'
        "<button>Sign in</button></form>"
    )
    lead = "This server needs its token: its ORBIT_API_TOKEN, or if it has none, the token that it printed when it started."
    return _document("Sign in", lead, body)


def missing(what: str) -> str:
    return _document("Not here", what, '<nav><a href="/">All jobs</a></nav>')


# -- parts ------------------------------------------------------------------------------------------


def _document(title: str, lead: str, body: str, *, live: bool = False) -> str:
    script = f"<script>{_LIVE}</script>" if live else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{_text(title)}</h1><p class="lead">{_text(lead)}</p>{body}</main>{script}</body></html>\n'
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The cells are markup."""
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(followed: Followed) -> tuple[str, ...]:
    known = followed.job
    return (
        _link(known.id), _text(_state(followed)), _text(_what(known)), _text(known.slot),
        time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(known.submitted)),
        _text(known.summary.removeprefix(f"{known.outcome}: ") if known.over else known.why),
    )  # fmt: skip


def _form(places: Sequence[str], given: Mapping[str, str]) -> str:
    value = {**dict.fromkeys(("text", "kernel", "gpu"), ""), **FORM, **given}
    return (
        '<form method="post" action="/page/jobs" accept-charset="utf-8">'
        f'<label for="text">Source</label><textarea id="text" name="text" required spellcheck="false">\n{escape(value["text"])}</textarea>'
        f"{_input('name', 'File name', value)}{_input('kernel', 'Kernel', value)}"
        '<p class="hint lead">A .cu or .py file. Without a kernel&#39;s name: its main, its ModelNew, or its only launch spec.</p>'
        f"{_select('action', 'Do', [action for action in ACTIONS if action != 'compare'], value)}"
        f"{_select('gpu', 'Place', ['', *places], value)}{_select('grade', 'Grade', GRADES, value)}"
        "<button>Submit</button></form>"
    )


def _input(name: str, label: str, value: Mapping[str, str]) -> str:
    return (
        f'<label for="{name}">{label}</label><input id="{name}" name="{name}" value="{_text(value[name])}">'
    )


def _select(name: str, label: str, choices: Sequence[str], value: Mapping[str, str]) -> str:
    options = "".join(
        f'<option value="{_text(choice)}"{" selected" if choice == value[name] else ""}>{_text(choice or "any")}</option>'
        for choice in choices
    )
    return f'<label for="{name}">{label}</label><select id="{name}" name="{name}">{options}</select>'


def _link(job: str) -> str:
    return f'<a href="/page/jobs/{_text(job)}">{_text(job)}</a>' if job else ""


def _state(followed: Followed) -> str:
    known = followed.job
    if known.over or not followed.position:
        return known.outcome or ("cancelling" if known.cancelling else known.state)
    return f"{known.state}, {followed.position} before it"


def _what(known: StoredJob) -> str:
    return " ".join(filter(None, (known.action, known.file.rpartition("/")[2], known.kernel)))


def _counted(waiting: int) -> str:
    return f"{waiting} wait." if waiting != 1 else "1 waits."


def _text(value: object) -> str:
    return escape(visible(str(value)))
