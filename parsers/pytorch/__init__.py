"""PyTorch checkpoints: zip (torch 1.6 and later), legacy (0.1.10 to 1.5) and tar (0.1.1 to 0.1.9), without torch.

Where the bytes of a storage lie, ``zip``, ``legacy`` and ``tar`` tell; which part of it is a tensor,
`pparse.parsers.pytorch.rebuild`.
"""
