"""PaddlePaddle programs, and the files with their parameters."""
