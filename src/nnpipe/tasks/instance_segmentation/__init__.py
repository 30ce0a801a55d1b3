"""Instance segmentation: a mask of each thing in a picture."""
