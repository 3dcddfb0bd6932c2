"""Writers that stream their output."""
