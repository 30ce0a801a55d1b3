"""Models, data and results under one prefix, the same in a local folder and in S3."""
