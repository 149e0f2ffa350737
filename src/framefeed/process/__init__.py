"""Pictures -> tensors."""
