"""TensorFlow checkpoints: tables of tensors, and the files beside them."""
