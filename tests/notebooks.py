"""The notebooks as programs: their cells run in order, and show what the notebook shows.

``python tests/notebooks.py`` runs them and writes outputs and pictures in, so that none is made by hand.
"""

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from pages import ROOT, refresh

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def outputs(page: Path) -> list[list[dict[str, Any]]]:
    """Run a notebook's cells in the current folder, and give what each shows, in the notebook's own form."""
    import matplotlib

    matplotlib.use("agg")
    namespace: dict[str, Any] = {"__name__": page.stem}
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    return [_shown("".join(cell["source"]), namespace, page) for cell in cells if cell["cell_type"] == "code"]


def _shown(code: str, namespace: dict[str, Any], page: Path) -> list[dict[str, Any]]:
    """What a cell prints, its last expression, and its figures."""
    from matplotlib import pyplot

    body, last, output = ast.parse(code).body, None, io.StringIO()
    found: list[dict[str, Any]] = []
    if body and isinstance(end := body[-1], ast.Expr):
        last = ast.Expression(end.value)
        body.pop()
    with contextlib.redirect_stdout(output):
        exec(compile(ast.Module(body, []), str(page), "exec"), namespace)
        value = eval(compile(last, str(page), "eval"), namespace) if last is not None else None
    if output.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": output.getvalue().splitlines(True)})
    if value is not None and not code.rstrip().endswith(";"):
        data: dict[str, Any] = {"text/plain": repr(value).splitlines(True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(True)
        found.append({"data": data, "metadata": {}, "output_type": "display_data"})
    for number in pyplot.get_fignums():
        snapshot = io.BytesIO()
        pyplot.figure(number).savefig(snapshot, format="png", dpi=80, metadata={"Software": None})
        pyplot.close(number)
        data = {"image/png": base64.b64encode(snapshot.getvalue()).decode()}
        found.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return found


def texts(displayed: list[dict[str, Any]]) -> list[Any]:
    """What a cell shows but for the bytes of pictures, which differ between machines."""
    return [one.get("text") or one["data"].get("text/plain") or "a picture" for one in displayed]


def refreshed(page: Path) -> str:
    """The notebook with every output replaced by what its cells show now."""
    content = json.loads(page.read_text(encoding="utf-8"))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    for number, (cell, displayed) in enumerate(zip(code, outputs(page), strict=True), 1):
        cell["outputs"], cell["execution_count"] = displayed, number
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    refresh(NOTEBOOKS, refreshed)
