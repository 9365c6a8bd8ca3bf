"""What the book's pages are made of: figures and sliders, tables and the map, values for the text."""
