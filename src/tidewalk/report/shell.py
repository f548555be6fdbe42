"""What every page has in common: it opens without a network, carries plotly.js once and runs nothing else.

Its content security policy names the two scripts by their SHA-256, so a name in the data cannot become code even if it
escaped its quotes.
"""

import base64
import hashlib
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

ANY_CURRENCY = "¤"
"""What labels are written with; `in_currency` puts the study's own in its place."""


def render_page(template: str, context: dict[str, Any]) -> str:
    """A page as text: a template of this part, filled; the same context gives the same bytes."""
    loader = PackageLoader("tidewalk.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    scripts = {"plotly_js": get_plotlyjs(), "page_js": _source(environment, "report.js").strip()}
    policy = " ".join(_script_hash(text) for text in scripts.values())
    return environment.get_template(template).render(
        csp=f"default-src 'none'; script-src {policy}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(_source(environment, "report.css")),
        **{name: Markup(text) for name, text in scripts.items()},
        **context,
    )


def in_currency(page: str, currency: str) -> str:
    """The page with the currency of its money in place of the sign for any currency, which labels are written with."""
    # letters alone: it stands in texts and in JSON, and comes from a file
    shown = "".join(letter for letter in currency if letter.isalpha())[:8] or "money"
    return page.replace(ANY_CURRENCY, shown).replace(f"\\u{ord(ANY_CURRENCY):04x}", shown)


def figure_json(figure: go.Figure | None) -> Markup | None:
    """A figure as JSON that may stand inside a script element: `<`, `>` and `&` are escaped, NaN is null."""
    if figure is None:
        return None
    text = figure.to_json(validate=False) or ""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _source(environment: Environment, name: str) -> str:
    """Text of a file beside the template, without rendering it."""
    loader = environment.loader
    assert loader is not None
    return loader.get_source(environment, name)[0]


def _script_hash(text: str) -> str:
    """Source expression of the content security policy that allows exactly this inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
