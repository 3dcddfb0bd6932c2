"""What a person asks of a model: tensors by name, as numpy arrays."""
