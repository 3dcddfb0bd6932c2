"""Names that nothing in the package uses, and why they stay: a list for vulture, never run."""

from __future__ import annotations

# The names of Riegeli's own bindings, and of TensorFlow's classes: programs written for those call them.
_.can_read
_.estimated_size
_.read_chunked_from_string
_.read_messages
_.read_partial
_.search_for_message
_.search_for_record
_.supports_random_access
_.write_messages
_.write_records
min_buffer_size

# For those who use or test the package: what a model, a graph, a folder or a limit says of itself.
RestartData
_.assets
_.collections
_.cut_files
_.json_name
_.open_count
_.restarts
_.same_model
_.source_mtime
_.tensor_rank
_.same_model
read_fingerprint

# Tests find the last bit of a block by it.
_.end_bits

# For callers: tables of pandas, dask arrays.
_.to_frame
_.to_dask

# Called as functions; numpy looks at the flag.
_.__call__
_.writeable

# For the states of parsers: the formats of the guide take their bytes with them.
_.behind_child
_.emit_next
_.emit_record
_.emit_text

# What the registry's table is made of (tests/make_builtin_formats.py).
is_generic

# For callers, and found by its name in the registry's table.
_.state_dict
gguf_viewer
