"""DECISIONS -> NUMBERS, PICTURES: how the page looks. One column, system fonts, light and dark."""

from offramp.report.canvas import INK

CSS = f"""
:root {{
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --line: #e3e6ea; --ink: #1b1f26; --soft: #5b6472; --accent: #2f6cb0;
}}
@media (prefers-color-scheme: dark) {{
  :root {{ --paper: #14171c; --card: #1c2027; --line: #2e343d; --ink: #e6e9ee; --soft: #a1a9b6; --accent: #7fb2ea; }}
}}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; }}
body {{
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Ubuntu, Cantarell, sans-serif;
  font-variant-numeric: tabular-nums;
}}
main {{ max-width: 66rem; margin: 0 auto; padding: clamp(1.5rem, 5vw, 4rem) clamp(1rem, 4vw, 2.5rem) 5rem; }}
h1, h2 {{ line-height: 1.2; font-weight: 650; letter-spacing: -0.015em; text-wrap: balance; overflow-wrap: anywhere; }}
h1 {{ font-size: clamp(1.7rem, 4.5vw, 2.5rem); margin: 0 0 1rem; }}
h2 {{ font-size: 1.35rem; margin: 0 0 1.25rem; }}
section {{ margin-top: 3.5rem; padding-top: 2rem; border-top: 1px solid var(--line); }}
section.headline {{ margin-top: 2.25rem; padding-top: 0; border: 0; }}
p {{ max-width: 44rem; }}
code {{ font: 0.9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }}

.facts {{ display: flex; flex-wrap: wrap; gap: 0.5rem 2rem; margin: 0; }}
.facts div {{ min-width: 0; }}
.facts dt, .card dt {{ color: var(--soft); font-size: 0.8rem; }}
.facts dd {{ margin: 0; overflow-wrap: anywhere; }}

.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem; margin: 0; }}
.card {{ background: var(--card); border-radius: 0.6rem; padding: 1rem 1.1rem 0.9rem; }}
.card dd {{ margin: 0.15rem 0 0; font-size: 1.75rem; line-height: 1.2; font-weight: 600; letter-spacing: -0.02em; }}
.card small {{ display: block; font-size: 0.8rem; font-weight: 400; letter-spacing: 0; color: var(--soft); }}
.card:first-child dd {{ color: var(--accent); }}

.pair {{
  display: grid; gap: 2rem 2.5rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
}}
.pair > figure:first-child:nth-last-child(3) {{ grid-row: span 2; }}
.stack {{ display: grid; gap: 2rem; grid-template-columns: minmax(0, 1fr); }}
.stack figure svg {{ max-width: 46rem; }}
figure {{ margin: 0; min-width: 0; }}
figure svg {{ display: block; width: 100%; max-width: 34rem; height: auto; }}
figure svg text {{ font-family: inherit !important; }}
figure svg text[style*="{INK}"] {{ fill: var(--soft) !important; }}
section[aria-labelledby="map"] svg text {{
  paint-order: stroke; stroke: var(--paper); stroke-width: 2.5px; stroke-linejoin: round; fill: var(--ink) !important;
}}
figcaption {{ margin-top: 0.75rem; font-size: 0.9rem; line-height: 1.5; color: var(--soft); max-width: 44rem; }}
figcaption strong {{ color: var(--ink); font-weight: 500; }}

.table {{ overflow-x: auto; min-width: 0; }}
table {{ border-collapse: collapse; width: 100%; font-size: 0.9rem; }}
caption {{ text-align: left; color: var(--soft); padding: 0 0 0.5rem; }}
th, td {{ text-align: left; padding: 0.4rem 1rem 0.4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }}
th {{ font-weight: 500; overflow-wrap: anywhere; }}
td {{ overflow-wrap: anywhere; }}
thead th {{ color: var(--soft); font-size: 0.8rem; white-space: nowrap; overflow-wrap: normal; }}
.n {{ text-align: right; white-space: nowrap; overflow-wrap: normal; }}
th:last-child, td:last-child {{ padding-right: 0; }}
.idle th, .idle td {{ color: var(--soft); }}

details {{ margin-top: 1rem; }}
summary {{ cursor: pointer; color: var(--accent); font-weight: 500; padding: 0.35rem 0; }}
details .table {{ margin-top: 0.75rem; }}
:focus-visible {{ outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 2px; }}
footer {{ margin-top: 4rem; color: var(--soft); font-size: 0.85rem; }}

@media print {{
  main {{ max-width: none; padding: 0; }}
  figure, table, .card {{ break-inside: avoid; }}
}}
"""
