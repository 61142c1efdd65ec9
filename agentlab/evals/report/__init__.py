"""Reports of a run: the HTML page, terminal tables, notebook views, and files for other programs.

`page.report(run)` makes the page, `content` gathers its data, `packing` keeps it small. `show` prints a conversation
side by side, `tables` fits tables to a width, `gate_files` and `export` write files for other programs.
The parts of the page are page.html, page.css, and figures.js, matrix.js, drawer.js and start.js, joined in this order.
"""
