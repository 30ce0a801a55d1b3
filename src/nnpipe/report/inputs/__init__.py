"""The inputs of reports, read and checked: runs, sweep files and the files of plugins."""
