"""A provenance picture as one interactive HTML page, made with pyvis and closed to the outside.

pyvis' page fetches styles from elsewhere, prints its heading without escaping and, when a title
holds a certain word, puts titles into the page as HTML. What comes out here does none of that: the
fetches and the heading are cut out, the word is broken, and a page that still reaches outside is
refused. Items are named n0, n1, ... in the page, so no stored id becomes a name of something else.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mnemes_lab.errors import MissingExtraError, MnemesError
from mnemes_lab.view._scene import BANDS, GRID, INK, MUTED, ROOT_FILL, Scene, safe
from mnemes_lab.view._svg import entries, relation_told, told

FURNITURE = 176  # pixels of the page besides the drawing: heading, legend, the item read in full
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; script-src-attr 'none'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
_CUT = re.compile(
    r"<!--.*?-->"  # loaders that were commented out
    r"|<center>\s*<h1>.*?</h1>\s*</center>"
    r"|<link\b[^>]*https?://[^>]*>"
    r"|<script\b[^>]*\bsrc=[^>]*>\s*</script>"
    r"|//# sourceMappingURL=[^\s<]+"
    r"|<style>.*?</style>",  # 0.2 MB of pictures for buttons that are not shown
    re.DOTALL,
)
_DATA = re.compile(r"^ *(?:nodes|edges) = new vis\.DataSet\(.*\);$", re.MULTILINE)
_REACHES_OUT = re.compile(
    r"https?://cdn|popup\.innerHTML|@import|sourceMappingURL"
    r"|<(?:link|img|iframe|frame|object|embed|video|audio|source|track|base|form|image|use)\b"
    r"|<script\b[^>]*\bsrc\b|\bhttp-equiv\b"
    r"|\burl\(\s*[\"']?(?!data:)[^\"'\s)]",
    re.IGNORECASE,
)
_OPTIONS = {
    "physics": {"enabled": False},
    "layout": {"improvedLayout": False, "randomSeed": 1},
    "interaction": {"hover": True, "tooltipDelay": 150, "hideEdgesOnDrag": False},
    "nodes": {
        "borderWidthSelected": 3,
        "font": {
            "size": 11,
            "face": "sans-serif",
            "color": INK,
            "strokeWidth": 3,
            "strokeColor": "#ffffff",
        },
        "labelHighlightBold": False,
    },
    "edges": {
        "arrows": {"to": {"enabled": True, "scaleFactor": 0.5}},
        "hoverWidth": 1,
        "selectionWidth": 1.5,
    },
}
_STYLE = f"""
body {{ margin: 0; padding: 10px 14px; box-sizing: border-box; color: {INK}; background: #fff;
  font: 12px/1.4 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }}
h1 {{ font-size: 15px; margin: 0; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; }}
p {{ margin: 0; color: {MUTED}; }}
ul.legend {{ display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 6px 0; padding: 0;
  list-style: none; max-height: 52px; overflow: auto; }}
ul.legend svg {{ width: 30px; height: 12px; margin-right: 6px; vertical-align: -1px; }}
.card {{ overflow: hidden; }}
div#mynetwork {{ box-sizing: border-box; float: none; border: 1px solid {GRID}; }}
p#told {{ height: 52px; overflow: auto; margin-top: 6px; white-space: pre-line;
  overflow-wrap: anywhere; }}
div.vis-network {{ outline: none; }}
div.vis-tooltip {{ position: absolute; visibility: hidden; z-index: 5; pointer-events: none;
  max-width: 340px; overflow-wrap: anywhere; color: {INK}; background: #fff;
  border: 1px solid #cbd2d9; border-radius: 4px; box-shadow: 0 1px 4px #0003; padding: 6px 8px; }}
"""
# The ground is drawn on the canvas, where text is only ever text. Names of lanes and instants keep
# their size and stay in sight while the picture moves.
_GROUND = """
(function () {
  const ground = %s;
  const box = document.getElementById("mynetwork");
  function ends() {
    return [network.DOMtoCanvas({x: 0, y: 0}),
            network.DOMtoCanvas({x: box.clientWidth, y: box.clientHeight})];
  }
  function paper(ctx, text, x, y) {
    ctx.strokeText(text, x, y);
    ctx.fillText(text, x, y);
  }
  network.on("beforeDrawing", function (ctx) {
    const [from, to] = ends();
    ground.lanes.forEach(function (lane, at) {
      ctx.fillStyle = ground.bands[at %% ground.bands.length];
      ctx.fillRect(from.x, lane.top, to.x - from.x, lane.bottom - lane.top);
    });
    ctx.fillStyle = ground.grid + "99";  // the lanes show through
    ground.ticks.forEach(function (tick) {
      ctx.fillRect(tick.x, 0, Math.max(tick.span, 1), ground.height);
    });
    ground.roots.forEach(function (root) {
      ctx.strokeStyle = ground.ring;
      ctx.lineWidth = 1.5;
      ctx.beginPath();
      ctx.arc(root.x, root.y, root.r, 0, 2 * Math.PI);
      ctx.stroke();
    });
  });
  network.on("afterDrawing", function (ctx) {
    const [from, to] = ends();
    const dot = 1 / network.getScale();
    ctx.fillStyle = ground.muted;
    ctx.strokeStyle = "#fff";
    ctx.lineWidth = 3 * dot;
    ctx.lineJoin = "round";
    ctx.textBaseline = "alphabetic";
    ctx.textAlign = "left";
    ctx.font = "bold " + 11 * dot + "px sans-serif";
    ground.lanes.forEach(function (lane) {
      if (lane.bottom < from.y || lane.top > to.y) { return; }
      paper(ctx, lane.label, from.x + 8 * dot, Math.max(lane.top, from.y) + 14 * dot);
    });
    ctx.textAlign = "center";
    ctx.font = 10 * dot + "px sans-serif";
    const foot = Math.min(ground.height + 26 * dot, to.y - 4 * dot);
    let last = -Infinity, day = "";
    ground.ticks.forEach(function (tick) {
      const wide = Math.max(ctx.measureText(tick.time).width, ctx.measureText(tick.date).width);
      const x = tick.x + tick.span / 2;
      if (x - wide / 2 < last + 8 * dot || x < from.x || x > to.x) { return; }
      last = x + wide / 2;
      paper(ctx, tick.time, x, foot - 12 * dot);
      if (tick.date !== day) { paper(ctx, tick.date, x, foot); }
      day = tick.date;
    });
  });
  function fit() {
    const scale = Math.min(box.clientWidth / ground.width,
                           box.clientHeight / (ground.height + 40), 1.25);
    network.moveTo({position: {x: ground.width / 2, y: ground.height / 2 + 16}, scale: scale});
  }
  fit();
  addEventListener("load", fit);  // only now is the size of the page settled
  network.on("select", function (event) {
    const node = event.nodes.length ? nodes.get(event.nodes[0]) : null;
    const edge = event.edges.length ? edges.get(event.edges[0]) : null;
    document.getElementById("told").textContent = (node || edge || {title: ground.hint}).title;
  });
})();
"""
_HINT = "Click an item or a line to read it here. Drag to move, turn the wheel to zoom."


def compose(scene: Scene, heading: str, caption: str, height: int) -> str:
    """The whole page.

    Raises:
        MissingExtraError: pyvis is not installed.
        MnemesError: its page is not as expected, or still reaches outside.
    """
    page = _CUT.sub("", _pyvis_page(scene, height))
    shell, found = _DATA.subn("", page)
    marks = ("<html>", "<head>", "<body>", "</body>")
    if found != 2 or any(shell.count(mark) != 1 for mark in marks) or _REACHES_OUT.search(shell):
        raise MnemesError(
            "pyvis made a page that is not self-contained.", hint="pip install pyvis==0.3.2"
        )
    head = (
        '<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{safe(heading)}</title>"
    )
    legend = "".join(
        f'<li><svg viewBox="0 0 30 12" aria-hidden="true">{sample}</svg>{safe(name)}</li>'
        for sample, name in entries(scene)
    )
    top = (
        f"<body>\n<style>{_STYLE}</style>\n<h1>{safe(heading)}</h1>\n<p>{safe(caption)}</p>\n"
        f'<ul class="legend">{legend}</ul>'
    )
    foot = f'<p id="told">{safe(_HINT)}</p>\n</body>'
    # The ground joins the script that makes the drawing, or a first frame could come without it.
    before, end, after = page.rpartition("</script>")
    page = f"{before}{_GROUND % _script_json(_ground(scene))}{end}{after}"
    for mark, text in zip(
        marks, ('<!DOCTYPE html>\n<html lang="en">', head, top, foot), strict=True
    ):
        page = page.replace(mark, text, 1)
    return page


def _pyvis_page(scene: Scene, height: int) -> str:
    try:
        from pyvis.network import Network
    except ImportError:
        raise MissingExtraError.of("The interactive picture", "pyvis", "lab") from None
    net = Network(height=f"{height}px", width="100%", directed=True, cdn_resources="in_line")
    for place in range(len(scene.items)):
        net.add_node(f"n{place}", **_node(scene, place))
    for place in range(len(scene.relations)):
        relation = scene.relations[place]
        net.add_edge(f"n{relation.source}", f"n{relation.target}", **_edge(scene, place))
    net.set_options(json.dumps(_OPTIONS))
    return str(net.generate_html(notebook=False))


def _title(text: str) -> str:
    """A title without the word that makes pyvis put titles into the page as HTML."""
    return text.replace("href", "h\u200bref")


def _node(scene: Scene, place: int) -> dict[str, Any]:
    item, spot = scene.items[place], scene.spots[place]
    look = item.look
    colours = {
        "background": ROOT_FILL if item.root else look.fill,
        "border": INK if item.root else look.border,
    }
    node: dict[str, Any] = {
        "label": "\n".join(spot.lines),
        "title": _title(told(item)),
        "x": spot.x,
        "y": spot.y,
        "shape": look.shape,
        "size": look.radius,
        "borderWidth": 2 if item.root else 1.4,
        "color": {**colours, "highlight": colours, "hover": colours},
    }
    if look.small:  # its label stands above it
        node["font"] = {"size": 9.5, "vadjust": -2 * look.radius - 22}
    elif item.root:
        node["font"] = {"size": 12, "vadjust": 4}
    return node


def _edge(scene: Scene, place: int) -> dict[str, Any]:
    relation, bow = scene.relations[place], scene.bows[place]
    stroke = relation.stroke
    edge: dict[str, Any] = {
        "title": _title(relation_told(scene, relation)),
        "color": {"color": stroke.colour, "highlight": stroke.colour, "hover": stroke.colour},
        "dashes": list(stroke.dashes) or False,
        "width": stroke.width,
    }
    if relation.source == relation.target:
        edge["selfReference"] = {"size": bow, "angle": 0.8}
        return edge
    a, b = scene.spots[relation.source], scene.spots[relation.target]
    far = ((a.x - b.x) ** 2 + (a.y - b.y) ** 2) ** 0.5
    # vis-network bends by a share of the way; this share brings the middle about `bow` aside.
    bend = round(min(0.95, 2.2 * abs(bow) / far), 4)
    edge["smooth"] = {
        "enabled": bend > 0,
        "type": "curvedCW" if bow > 0 else "curvedCCW",
        "roundness": bend,
    }
    return edge


def _ground(scene: Scene) -> dict[str, Any]:
    return {
        "lanes": [
            {"label": lane.label[:80], "top": lane.top, "bottom": lane.bottom}
            for lane in scene.lanes
        ],
        "ticks": [tick._asdict() for tick in scene.ticks],
        "roots": [
            {"x": spot.x, "y": spot.y, "r": item.look.radius + 5}
            for item, spot in zip(scene.items, scene.spots, strict=True)
            if item.root
        ],
        "width": scene.width,
        "height": scene.height,
        "bands": BANDS,
        "grid": GRID,
        "muted": MUTED,
        "ring": ROOT_FILL,
        "hint": _HINT,
    }


def _script_json(value: Any) -> str:
    """JSON that ends no script: nothing in it but ASCII, and none of HTML's own characters."""
    text = json.dumps(value, sort_keys=True)
    return re.sub("[<>&']", lambda match: f"\\u{ord(match[0]):04x}", text)
