"""Networks that swapping is measured on."""
