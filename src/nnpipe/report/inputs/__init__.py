"""What reports are made from: result files, sweep files and the files of plugins, read and checked."""
