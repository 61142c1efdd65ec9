"""The page of a run: one HTML file with the verdict, its figures, every reply and the traces behind them.

`page.report(run)` makes it, `content` gathers what is shown, `packing` keeps it small. `show` puts a conversation side
by side, `tables` fits what is printed to a width, `gate_files` and `export` write what other programs read.
The page's own parts are page.html, page.css, and figures.js, matrix.js, drawer.js and start.js, joined in this order.
"""
