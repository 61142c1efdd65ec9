"""The page of a run: one HTML file with the verdict, its figures, every reply and the traces behind them.

`page.report(run)` makes it; `verdict` says what to ship, `content` gathers what is shown, `packing` keeps it small.
The page's own parts are page.html, page.css, and figures.js, matrix.js and drawer.js, joined in this order.
"""
