"""What event files of TensorBoard log, by tag."""
