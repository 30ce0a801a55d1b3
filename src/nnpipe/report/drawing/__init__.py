"""The drawing of charts: from data to shapes, and from shapes to SVG or PNG."""
