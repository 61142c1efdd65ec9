"""Output of a run: the HTML page, pictures, tables, and files for other programs.

`page`: `report(run)`, one HTML file from page.html, page.css and, in this order, figures.js, matrix.js, drawer.js and
start.js. `content`: the data of the page. `packing`: compression of its texts. `drawing`: figures as SVG, for page and
notebook.
`views`: figures for notebooks. `tables`: tables and lines of any width. `show`: a conversation side by side.
`comparison`: a comparison as data, frame and Markdown. `gate_files`: gate.json, gate.md and JUnit XML. `export`: the
turns as CSV or Parquet.
"""
