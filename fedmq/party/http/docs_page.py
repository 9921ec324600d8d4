"""``/docs``: the OpenAPI document as one page, without scripts or foreign addresses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

__all__ = ["docs_page", "docs_router"]

_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:52em;margin:2em auto;padding:0 1em;color:#222}"
    "h2{border-top:1px solid #ccc;padding-top:1em;font-size:1.1em}h3{font-size:1em}"
    "code,pre{font-family:monospace;background:#f4f4f4}pre{padding:.7em;overflow:auto}"
    "td,th{text-align:left;padding:.15em 1em .15em 0;vertical-align:top}"
)

_HEADERS = {
    # If a description ever holds markup, a browser still neither runs nor loads anything.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"
}


def docs_router(openapi: Callable[[], Mapping[str, Any]]) -> APIRouter:
    """Serves the page for the document that ``openapi`` returns."""
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(openapi()), headers=_HEADERS)

    return router


def docs_page(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI ``document``, as HTML."""
    title = escape(document["info"]["title"])
    body = "".join(
        part
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for part in _operation(method, path, operation)
    )
    schemas = document.get("components", {}).get("schemas", {})
    body += "".join(
        f'<h2 id="{escape(name)}">{escape(name)}</h2>{_schema(schema)}'
        for name, schema in schemas.items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        '<p>The same for machines: <a href="openapi.json">openapi.json</a>. Where the daemon asks '
        "for a token, send <code>Authorization: Bearer TOKEN</code>.</p>"
        f"{body}</body></html>\n"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('summary', ''))}</p>"
    if description := operation.get("description"):
        yield f"<p>{escape(description)}</p>"
    if parameters := operation.get("parameters"):
        rows = [
            (field["name"], field["in"], "required" if field.get("required") else "optional")
            for field in parameters
        ]
        yield "<h3>Parameters</h3>" + _table(rows)
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<h3>Body: <code>{escape(kind)}</code></h3>{_schema(content.get('schema', {}))}"
    rows = [
        (status, response.get("description", ""), _references(response))
        for status, response in operation["responses"].items()
    ]
    yield "<h3>Answers</h3>" + _table(rows)


def _references(response: Mapping[str, Any]) -> str:
    """The names of the schemas in an answer."""
    schemas = (content.get("schema", {}) for content in response.get("content", {}).values())
    return ", ".join(schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema)


def _schema(schema: Mapping[str, Any]) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"


def _table(rows: list[tuple[str, str, str]]) -> str:
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table>{lines}</table>"
