"""A storage of models, data and results, with the same layout in a local folder and in S3."""
