"""Reports: result files as RST, HTML and pictures."""
