"""TensorFlow checkpoints: tables of tensors, and the files beside them.

Where the blocks of a table lie, and what stands in one, `pparse.parsers.checkpoint.table` tells; what an entry says of
its tensor, ``parser``.
"""
