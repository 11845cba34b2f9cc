"""Compute advantages, targets, losses and gradients."""
