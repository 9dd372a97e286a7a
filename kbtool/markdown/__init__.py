"""Text, figures and charts as Markdown, HTML and SVG. Knows no page, no link and no index."""
