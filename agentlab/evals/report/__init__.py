"""The page of a run: one HTML file with the verdict, its figures, every reply and the traces behind them.

`page.report(run)` makes it; `verdict` says what to ship, `content` gathers what is shown, `packing` keeps it small.
The page's own parts are page.html, page.css, and figures.js, matrix.js, drawer.js and start.js, joined in this order.
`live` is the same page of a run that goes on, and `server` where `agentlab view` shows it.
"""
