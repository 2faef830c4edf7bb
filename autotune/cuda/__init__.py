"""CUDA: kernel templates to cubins, and what the driver is asked for and handed."""
