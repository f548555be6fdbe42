"""Walk-forward reinforcement learning for futures, resident on the accelerator."""
