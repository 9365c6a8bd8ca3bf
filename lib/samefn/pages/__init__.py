"""What the book's pages are made of: figures and sliders, tables and linked graphs, values for the text."""
