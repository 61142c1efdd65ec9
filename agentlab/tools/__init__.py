"""The built-in tools, one a file; the name of the file is the name of the tool."""
